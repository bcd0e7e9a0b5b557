// This file is included once per instruction set, with BLUEFOG_KERNELS naming the table to define.
// Everything in it has internal linkage and uses no std:: algorithms. The linker must never pick a
// template that was compiled for AVX-512 on a machine without it.
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/kernels.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bluefog {
namespace {

// The kernels work on this many elements at a time, so that the accumulators stay in the
// first-level cache.
constexpr size_t kBlock = 1024;
// The kernels read this many inputs side by side, which is as many streams as a core can follow.
constexpr size_t kTerms = 4;

#if defined(__AVX512F__)
using Vector = __m512i;
Vector load(const char* at) {
  return _mm512_loadu_si512(at);
}
void store(char* at, Vector vector) {
  _mm512_storeu_si512(at, vector);
}
void stream(char* at, Vector vector) {
  _mm512_stream_si512(reinterpret_cast<Vector*>(at), vector);
}
#elif defined(__AVX2__)
using Vector = __m256i;
Vector load(const char* at) {
  return _mm256_loadu_si256(reinterpret_cast<const Vector*>(at));
}
void store(char* at, Vector vector) {
  _mm256_storeu_si256(reinterpret_cast<Vector*>(at), vector);
}
void stream(char* at, Vector vector) {
  _mm256_stream_si256(reinterpret_cast<Vector*>(at), vector);
}
#elif defined(__x86_64__)
using Vector = __m128i;
Vector load(const char* at) {
  return _mm_loadu_si128(reinterpret_cast<const Vector*>(at));
}
void store(char* at, Vector vector) {
  _mm_storeu_si128(reinterpret_cast<Vector*>(at), vector);
}
void stream(char* at, Vector vector) {
  _mm_stream_si128(reinterpret_cast<Vector*>(at), vector);
}
#else
struct alignas(16) Vector {
  char bytes[16];
};
Vector load(const char* at) {
  Vector vector;
  std::memcpy(&vector, at, sizeof vector);
  return vector;
}
void store(char* at, Vector vector) {
  std::memcpy(at, &vector, sizeof vector);
}
void stream(char* at, Vector vector) {
  store(at, vector);
}
#endif

// A core prefetches within a page only, so data in memory arrives sooner out of several pages at a
// time. Measured: copying 64 MiB into a cached ring takes 5.3 ms instead of 7.2 ms.
// Each page begins at another offset, because lines at equal offsets of all pages compete for a few
// places in the cache. Without that, where a tensor was aligned like its slot, all_reduce of 64 MiB
// took 17.5 ms instead of 7.3 ms.
constexpr size_t kPage = 4096;
constexpr size_t kPages = 4;

template <void (*Put)(char*, Vector)>
void copyPages(char* to, const char* from) {
  constexpr size_t kLine = 64;
  for (size_t line = 0; line < kPage; line += kLine) {
    for (size_t page = 0; page < kPages * kPage; page += kPage) {
      // The offset shifts by a quarter page from each page to the next.
      const size_t begin = page + (line + page / kPages) % kPage;
      for (size_t at = begin; at < begin + kLine; at += sizeof(Vector)) {
        Put(to + at, load(from + at));
      }
    }
  }
}

template <void (*Put)(char*, Vector)>
void copyVectors(char* to, const char* from, size_t bytes) {
  constexpr size_t kVector = sizeof(Vector);
  if (bytes == 0) {
    return;  // either pointer may be null
  }
  // Streaming stores need an aligned target, and all stores are faster with one.
  size_t at = (kVector - reinterpret_cast<uintptr_t>(to) % kVector) % kVector;
  at = at < bytes ? at : bytes;
  std::memcpy(to, from, at);
  for (; at + kPages * kPage <= bytes; at += kPages * kPage) {
    copyPages<Put>(to + at, from + at);
  }
  for (; at + 4 * kVector <= bytes; at += 4 * kVector) {
    const Vector a = load(from + at);
    const Vector b = load(from + at + kVector);
    const Vector c = load(from + at + 2 * kVector);
    const Vector d = load(from + at + 3 * kVector);
    Put(to + at, a);
    Put(to + at + kVector, b);
    Put(to + at + 2 * kVector, c);
    Put(to + at + 3 * kVector, d);
  }
  std::memcpy(to + at, from + at, bytes - at);
}

// Makes streamed data visible to other cores before anything that is stored later, such as the news
// of that data.
void fenceStreams() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

// Copies like copyFenced(), but leaves the call of fenceStreams() to the caller.
void copyUnfenced(void* to, const void* from, size_t bytes, Stores stores) {
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  if (stores == Stores::kCached) {
    copyVectors<store>(out, in, bytes);
  } else {
    copyVectors<stream>(out, in, bytes);
  }
}

void copyFenced(void* to, const void* from, size_t bytes, Stores stores) {
  copyUnfenced(to, from, bytes, stores);
  if (stores == Stores::kStreamed) {
    fenceStreams();
  }
}

struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};
// A Bool is one byte, 0 or 1.
struct Bool {
  uint8_t value;
};

#if !defined(__F16C__)
float halfToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fffu) << 13;
  constexpr uint32_t kInfinity = 0x7c00u << 13;
  float value;
  if (magnitude >= kInfinity) {
    magnitude += (255u - 31u) << 23;
    std::memcpy(&value, &magnitude, sizeof value);
  } else {
    // Multiplying by 2^112 adjusts the exponent, and turns subnormal numbers into normal ones.
    std::memcpy(&value, &magnitude, sizeof value);
    value *= 0x1p112f;
  }
  uint32_t out;
  std::memcpy(&out, &value, sizeof out);
  out |= sign;
  std::memcpy(&value, &out, sizeof value);
  return value;
}

uint16_t floatToHalf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) {
    return sign | 0x7e00u;
  }
  if (bits >= 0x47800000u) {
    return sign | 0x7c00u;
  }
  if (bits < 0x38800000u) {
    // Adding 0.5 lets the hardware round the subnormal result to nearest even.
    float shifted;
    std::memcpy(&shifted, &bits, sizeof shifted);
    shifted += 0.5f;
    std::memcpy(&bits, &shifted, sizeof bits);
    return sign | static_cast<uint16_t>(bits - 0x3f000000u);
  }
  bits += 0xc8000fffu + ((bits >> 13) & 1u);
  return sign | static_cast<uint16_t>(bits >> 13);
}
#endif

// The functions widen() and narrow() convert between the type in memory and the type that is
// computed with.
template <class T>
void narrow(T* to, const T* from, size_t n) {
  copyUnfenced(to, from, n * sizeof(T), Stores::kCached);
}

void widen(float* to, const Half* from, size_t n) {
  size_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(to + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  }
  for (; i < n; ++i) {
    to[i] = _cvtsh_ss(from[i].bits);
  }
#else
  for (; i < n; ++i) {
    to[i] = halfToFloat(from[i].bits);
  }
#endif
}

void narrow(Half* to, const float* from, size_t n) {
  size_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(to + i),
        _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  for (; i < n; ++i) {
    to[i].bits = _cvtss_sh(from[i], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
#else
  for (; i < n; ++i) {
    to[i].bits = floatToHalf(from[i]);
  }
#endif
}

void widen(float* to, const BFloat* from, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const uint32_t bits = static_cast<uint32_t>(from[i].bits) << 16;
    std::memcpy(to + i, &bits, sizeof bits);
  }
}

void narrow(BFloat* to, const float* from, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, from + i, sizeof bits);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    to[i].bits = static_cast<uint16_t>(nan ? (bits >> 16) | 0x40u : rounded);
  }
}

void widen(uint8_t* to, const Bool* from, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    to[i] = from[i].value != 0;
  }
}
void narrow(Bool* to, const uint8_t* from, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    to[i].value = from[i] != 0;
  }
}

template <class T>
struct Computed {
  using type = T;
};
template <>
struct Computed<Half> {
  using type = float;
};
template <>
struct Computed<BFloat> {
  using type = float;
};
template <>
struct Computed<Bool> {
  using type = uint8_t;
};
template <class T>
constexpr bool kNative = sizeof(typename Computed<T>::type) == sizeof(T);
template <>
constexpr bool kNative<Bool> = false;

// Integers wrap around, as torch's do. In C++ only unsigned ones may overflow, so Wrapping names
// the unsigned type to compute with.
template <class A, bool = std::is_integral_v<A>>
struct Wrapping {
  using type = A;
};
template <class A>
struct Wrapping<A, true> {
  using type = std::common_type_t<unsigned, std::make_unsigned_t<A>>;
};

template <class A>
struct Sum {
  using W = typename Wrapping<A>::type;
  static A apply(A a, A b) { return static_cast<A>(static_cast<W>(a) + static_cast<W>(b)); }
};
template <class A>
struct Product {
  using W = typename Wrapping<A>::type;
  static A apply(A a, A b) { return static_cast<A>(static_cast<W>(a) * static_cast<W>(b)); }
};
// A NaN on either side gives NaN, as in torch.minimum and torch.maximum.
template <class A>
struct Min {
  static A apply(A a, A b) { return (a < b || a != a) ? a : b; }
};
template <class A>
struct Max {
  static A apply(A a, A b) { return (a > b || a != a) ? a : b; }
};
template <class A>
struct BitAnd {
  static A apply(A a, A b) { return a & b; }
};
template <class A>
struct BitOr {
  static A apply(A a, A b) { return a | b; }
};
template <class A>
struct BitXor {
  static A apply(A a, A b) { return a ^ b; }
};

// The pragma `ivdep` is safe here: `out` may be a term itself but never a shifted one, so no
// iteration reads what another wrote.
template <class Op, size_t N, class A>
void combineAll(A* out, const A* const* terms, size_t n) {
  const A* from[N];
  for (size_t k = 0; k < N; ++k) {
    from[k] = terms[k];
  }
#pragma GCC ivdep
  for (size_t i = 0; i < n; ++i) {
    A value = from[0][i];
    for (size_t k = 1; k < N; ++k) {
      value = Op::apply(value, from[k][i]);
    }
    out[i] = value;
  }
}

template <class A, class Divisor>
void divide(A* values, Divisor divisor, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    values[i] = static_cast<A>(values[i] / divisor);
  }
}
// The number of ranks may not fit into a byte, so bytes are divided as int.
template <class A>
void divideByCount(A* values, size_t count, size_t n) {
  if constexpr (sizeof(A) == 1) {
    divide(values, static_cast<int>(count), n);
  } else {
    divide(values, static_cast<A>(count), n);
  }
}

// Terms hands out a block of the inputs in turns of at most kTerms terms, which are read side by
// side. It converts them to the type that is computed with, unless that is the type in memory. From
// the second turn on, the first term is the result of the turns before.
template <class T>
class Terms {
 public:
  using A = typename Computed<T>::type;

  Terms(const void* const* inputs, size_t inputs_n) : inputs_(inputs), inputs_n_(inputs_n) {}

  // Selects the `n` elements from index `at` on, in every input.
  void begin(size_t at, size_t n) {
    at_ = at;
    n_ = n;
    next_ = 0;
  }
  // Prepares the next turn. `made` is the result of the turns before. Returns false when every
  // input has had its turn.
  bool turn(const A* made) {
    size_ = 0;
    if (next_ == inputs_n_) {
      return false;
    }
    if (next_ > 0) {
      terms_[size_++] = made;
    }
    for (first_ = next_; size_ < kTerms && next_ < inputs_n_; ++size_, ++next_) {
      terms_[size_] = values(inputs_[next_], scratch_[kNative<T> ? 0 : size_]);
    }
    return true;
  }
  // Calls visit() with size() as a compile-time constant.
  template <class Visit>
  void withSize(Visit visit) const {
    switch (size_) {
      case 1:
        return visit(std::integral_constant<size_t, 1>());
      case 2:
        return visit(std::integral_constant<size_t, 2>());
      case 3:
        return visit(std::integral_constant<size_t, 3>());
      default:
        return visit(std::integral_constant<size_t, kTerms>());
    }
  }
  bool isLast() const { return next_ == inputs_n_; }
  size_t size() const { return size_; }
  const A* const* data() const { return terms_; }
  // Returns the index of this turn's first input among all inputs.
  size_t first() const { return first_; }

 private:
  const A* values(const void* input, A* scratch) const {
    const T* from = static_cast<const T*>(input) + at_;
    if constexpr (kNative<T>) {
      return from;
    } else {
      widen(scratch, from, n_);
      return scratch;
    }
  }

  const void* const* inputs_;
  size_t inputs_n_;
  size_t at_ = 0;
  size_t n_ = 0;
  size_t next_ = 0;
  size_t first_ = 0;
  size_t size_ = 0;
  const A* terms_[kTerms];
  alignas(64) A scratch_[kNative<T> ? 1 : kTerms][kBlock];
};

template <class T, template <class> class Op>
void foldAs(void* out, const void* const* inputs, size_t inputs_n, size_t count, bool average) {
  using A = typename Computed<T>::type;
  alignas(64) A sum[kBlock];
  T* to = static_cast<T*>(out);
  Terms<T> terms(inputs, inputs_n);
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t n = count - at < kBlock ? count - at : kBlock;
    A* result = sum;
    if constexpr (kNative<T>) {
      result = average ? sum : to + at;
    }
    for (terms.begin(at, n); terms.turn(sum);) {
      A* made = terms.isLast() ? result : sum;
      terms.withSize([&](auto size) { combineAll<Op<A>, size>(made, terms.data(), n); });
    }
    if (average) {
      divideByCount(sum, inputs_n, n);
    }
    if (result == sum) {
      narrow(to + at, sum, n);
    }
  }
}

template <class T>
void foldOf(ReduceKind kind, void* out, const void* const* inputs, size_t inputs_n, size_t count) {
  switch (kind) {
    case ReduceKind::kAverage:
      return foldAs<T, Sum>(out, inputs, inputs_n, count, true);
    case ReduceKind::kProduct:
      return foldAs<T, Product>(out, inputs, inputs_n, count, false);
    case ReduceKind::kMin:
      return foldAs<T, Min>(out, inputs, inputs_n, count, false);
    case ReduceKind::kMax:
      return foldAs<T, Max>(out, inputs, inputs_n, count, false);
    default:
      return foldAs<T, Sum>(out, inputs, inputs_n, count, false);
  }
}

template <class T>
void foldIntegersOf(ReduceKind kind, void* out, const void* const* inputs, size_t inputs_n,
                    size_t count) {
  switch (kind) {
    case ReduceKind::kBitAnd:
      return foldAs<T, BitAnd>(out, inputs, inputs_n, count, false);
    case ReduceKind::kBitOr:
      return foldAs<T, BitOr>(out, inputs, inputs_n, count, false);
    case ReduceKind::kBitXor:
      return foldAs<T, BitXor>(out, inputs, inputs_n, count, false);
    default:
      return foldOf<T>(kind, out, inputs, inputs_n, count);
  }
}

// A sum of booleans is "or" and their product is "and", as in gloo. On bytes of 0 and 1 these are
// max and min, which cannot wrap around.
ReduceKind ofBooleans(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::kSum:
    case ReduceKind::kBitOr:
      return ReduceKind::kMax;
    case ReduceKind::kProduct:
    case ReduceKind::kBitAnd:
      return ReduceKind::kMin;
    default:
      return kind;
  }
}

void foldTyped(Dtype dtype, ReduceKind kind, void* out, const void* const* inputs, size_t inputs_n,
               size_t count) {
  switch (dtype) {
    case Dtype::kUInt8:
      return foldIntegersOf<uint8_t>(kind, out, inputs, inputs_n, count);
    case Dtype::kInt8:
      return foldIntegersOf<int8_t>(kind, out, inputs, inputs_n, count);
    case Dtype::kInt16:
      return foldIntegersOf<int16_t>(kind, out, inputs, inputs_n, count);
    case Dtype::kInt32:
      return foldIntegersOf<int32_t>(kind, out, inputs, inputs_n, count);
    case Dtype::kInt64:
      return foldIntegersOf<int64_t>(kind, out, inputs, inputs_n, count);
    case Dtype::kBool:
      return foldIntegersOf<Bool>(ofBooleans(kind), out, inputs, inputs_n, count);
    case Dtype::kFloat16:
      return foldOf<Half>(kind, out, inputs, inputs_n, count);
    case Dtype::kBFloat16:
      return foldOf<BFloat>(kind, out, inputs, inputs_n, count);
    case Dtype::kFloat32:
      return foldOf<float>(kind, out, inputs, inputs_n, count);
    case Dtype::kFloat64:
      return foldOf<double>(kind, out, inputs, inputs_n, count);
    default:
      return;  // callers have validated the type
  }
}

// Returns whether the divisor is a power of two. Multiplying by the inverse of such a number gives
// the same bits as dividing.
bool hasExactInverse(double divisor) {
  double power = 1;
  while (power < divisor) {
    power *= 2;
  }
  return power == divisor;
}

// Last says whether the last turn keeps its sums, multiplies them by `scale`, or divides them by
// it.
enum class Last { kAsItIs, kTimes, kOver };

template <size_t N, Last last, class A>
void weigh(A* out, const A* const* from, const A* factor, A scale, size_t n) {
#pragma GCC ivdep
  for (size_t i = 0; i < n; ++i) {
    A value = factor[0] * from[0][i];
    for (size_t k = 1; k < N; ++k) {
      value += factor[k] * from[k][i];
    }
    if constexpr (last == Last::kTimes) {
      value *= scale;
    } else if constexpr (last == Last::kOver) {
      value /= scale;
    }
    out[i] = value;
  }
}

// Each sum's target is prefetched this many bytes ahead, because a core prefetches what it reads
// and hardly what it writes. Measured with 4 MiB of two cached terms: 189 us, and 207 us without.
constexpr size_t kAhead = 2048;

void fetchToWrite(const char* at, size_t bytes) {
  constexpr size_t kLine = 64;
  for (size_t line = 0; line < bytes; line += kLine) {
    __builtin_prefetch(at + line, 1);
  }
}

// Writes the weighted sums of one turn. For streaming stores `out` must be aligned like a Vector,
// and the caller must call fenceStreams() afterwards.
template <size_t N, Last last, class A>
void weighAll(A* out, const A* const* terms, const A* factors, A scale, size_t n, Stores stores) {
  const A* from[N];
  A factor[N];
  for (size_t k = 0; k < N; ++k) {
    from[k] = terms[k];
    factor[k] = factors[k];
  }
  constexpr size_t kStep = 4 * sizeof(Vector) / sizeof(A);
  alignas(64) A made[kStep];
  size_t at = 0;
  for (; at + kStep <= n; at += kStep) {
    if (stores == Stores::kStreamed) {
      // Each vector is streamed as soon as it is made. Measured with 64 MiB of two terms on 2
      // cores: 8.3 ms, and 10.7 ms when whole blocks were streamed.
      weigh<N, last>(made, from, factor, scale, kStep);
      copyVectors<stream>(reinterpret_cast<char*>(out + at), reinterpret_cast<char*>(made),
                          sizeof made);
    } else {
      fetchToWrite(reinterpret_cast<char*>(out + at) + kAhead, kStep * sizeof(A));
      weigh<N, last>(out + at, from, factor, scale, kStep);
    }
    for (size_t k = 0; k < N; ++k) {
      from[k] += kStep;
    }
  }
  weigh<N, last>(out + at, from, factor, scale, n - at);
}

template <size_t N, class A>
void weighAll(A* out, const A* const* terms, const A* factors, Last last, A scale, size_t n,
              Stores stores) {
  switch (last) {
    case Last::kTimes:
      return weighAll<N, Last::kTimes>(out, terms, factors, scale, n, stores);
    case Last::kOver:
      return weighAll<N, Last::kOver>(out, terms, factors, scale, n, stores);
    default:
      return weighAll<N, Last::kAsItIs>(out, terms, factors, scale, n, stores);
  }
}

template <class T>
void weightedSumOf(void* out, const void* const* inputs, const double* weights, size_t inputs_n,
                   double divisor, size_t count, Stores stores) {
  using A = typename Computed<T>::type;
  alignas(64) A sum[kBlock];
  alignas(64) T narrowed[kNative<T> ? 1 : kBlock];
  T* to = static_cast<T*>(out);
  // Half types are summed into a block first and then narrowed, so only native types can stream
  // each vector.
  const bool streams = kNative<T> && stores == Stores::kStreamed;
  const bool at_once = !streams || reinterpret_cast<uintptr_t>(out) % sizeof(Vector) == 0;
  const A over = static_cast<A>(divisor);
  const bool exact = hasExactInverse(divisor);
  const A scale = exact ? A(1) / over : over;
  const Last divided = divisor == 1.0 ? Last::kAsItIs : exact ? Last::kTimes : Last::kOver;
  Terms<T> terms(inputs, inputs_n);
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t n = count - at < kBlock ? count - at : kBlock;
    A* result = sum;
    if constexpr (kNative<T>) {
      result = at_once ? to + at : sum;
    }
    for (terms.begin(at, n); terms.turn(sum);) {
      // The result of the turns before has the factor 1.
      A factors[kTerms] = {1};
      const size_t made = terms.first() > 0 ? 1 : 0;
      for (size_t k = made; k < terms.size(); ++k) {
        factors[k] = static_cast<A>(weights[terms.first() + k - made]);
      }
      A* made_now = terms.isLast() ? result : sum;
      const Last last = terms.isLast() ? divided : Last::kAsItIs;
      terms.withSize([&](auto size) {
        weighAll<size>(
            made_now, terms.data(), factors, last, scale, n,
            streams && made_now == result && at_once ? Stores::kStreamed : Stores::kCached);
      });
    }
    if constexpr (!kNative<T>) {
      narrow(narrowed, sum, n);
      copyUnfenced(to + at, narrowed, n * sizeof(T), stores);
    } else if (result == sum) {
      copyUnfenced(to + at, sum, n * sizeof(T), stores);
    }
  }
  if (stores == Stores::kStreamed) {
    fenceStreams();
  }
}

void weightedSumTyped(Dtype dtype, void* out, const void* const* inputs, const double* weights,
                      size_t inputs_n, double divisor, size_t count, Stores stores) {
  switch (dtype) {
    case Dtype::kFloat16:
      return weightedSumOf<Half>(out, inputs, weights, inputs_n, divisor, count, stores);
    case Dtype::kBFloat16:
      return weightedSumOf<BFloat>(out, inputs, weights, inputs_n, divisor, count, stores);
    case Dtype::kFloat32:
      return weightedSumOf<float>(out, inputs, weights, inputs_n, divisor, count, stores);
    case Dtype::kFloat64:
      return weightedSumOf<double>(out, inputs, weights, inputs_n, divisor, count, stores);
    default:
      return;  // callers have validated the type
  }
}

}  // namespace

const Kernels BLUEFOG_KERNELS = {copyFenced, foldTyped, weightedSumTyped};

}  // namespace bluefog
