// This file is compiled with --fmad=false, so that products are rounded before they are added, as
// on the CPU.
#include "device/cuda/weighted_sum.cuh"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "device/cuda/errors.cuh"
#include "device/cuda/numbers.cuh"
#include "device/cuda/vectors.cuh"

namespace {

// A launch copies the arguments of its kernel, so sums of few inputs use short arrays.
constexpr int kFewInputs = 32;

using Whole = unsigned long long;  // the type of sums of integers, which wrap around

template <class Wide, int most>
struct SumTerms {
  const void* inputs[most];
  Wide weights[most];
  int n;
  Wide divisor;
};

template <class T, int width, class Wide, int most>
__global__ void addTerms(T* out, const __grid_constant__ SumTerms<Wide, most> terms,
                         size_t vectors) {
  const size_t stride = size_t(gridDim.x) * blockDim.x;
  for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < vectors; i += stride) {
    Wide sum[width];
    for (int j = 0; j < terms.n; ++j) {
      const auto lane = vectorAt<T, width>(static_cast<const T*>(terms.inputs[j]), i);
#pragma unroll
      for (int k = 0; k < width; ++k) {
        Wide term = widened<Wide>(lane.values[k]);
        if constexpr (std::is_floating_point_v<Wide>) {
          term = terms.weights[j] * term;
        }
        sum[k] = j == 0 ? term : sum[k] + term;
      }
    }
    Vector<T, width> result;
#pragma unroll
    for (int k = 0; k < width; ++k) {
      if constexpr (std::is_floating_point_v<Wide>) {
        sum[k] = terms.divisor == 1 ? sum[k] : sum[k] / terms.divisor;
      }
      narrow(sum[k], result.values[k]);
    }
    vectorAt<T, width>(out, i) = result;
  }
}

// Adds vectors where all arrays begin on a vector's boundary. The rest is added element by element.
template <class T, class Wide, int most>
int launch(T* out, SumTerms<Wide, most>& terms, size_t numel, cudaStream_t stream) {
  const bool aligned = isAligned(out) && std::all_of(terms.inputs, terms.inputs + terms.n,
                                                     [](const void* in) { return isAligned(in); });
  const size_t vectors = aligned ? numel / kWidth<T> : 0;
  const size_t done = vectors * kWidth<T>;
  if (vectors > 0) {
    addTerms<T, kWidth<T>><<<blocksFor(vectors), kThreads, 0, stream>>>(out, terms, vectors);
  }
  if (done < numel) {
    for (int j = 0; j < terms.n; ++j) {
      terms.inputs[j] = static_cast<const T*>(terms.inputs[j]) + done;
    }
    addTerms<T, 1>
        <<<blocksFor(numel - done), kThreads, 0, stream>>>(out + done, terms, numel - done);
  }
  return launched();
}

struct Asked {
  void* out;
  const void* const* inputs;
  const double* weights;
  int n;
  double divisor;
  size_t numel;
  cudaStream_t stream;

  bool isPlain() const {
    return divisor == 1 && std::all_of(weights, weights + n, [](double w) { return w == 1; });
  }
};

template <class T, class Wide, int most>
int sum(const Asked& asked) {
  SumTerms<Wide, most> terms;
  std::copy_n(asked.inputs, asked.n, terms.inputs);
  std::transform(asked.weights, asked.weights + asked.n, terms.weights,
                 [](double weight) { return static_cast<Wide>(weight); });
  terms.n = asked.n;
  terms.divisor = static_cast<Wide>(asked.divisor);
  return launch(static_cast<T*>(asked.out), terms, asked.numel, asked.stream);
}

template <class T, class Wide>
int sum(const Asked& asked) {
  return asked.n <= kFewInputs ? sum<T, Wide, kFewInputs>(asked)
                               : sum<T, Wide, BLUEFOG_MOST_INPUTS>(asked);
}

template <class T>
int sumIntegers(const Asked& asked) {
  return asked.isPlain() ? sum<T, Whole>(asked) : sum<T, double>(asked);
}

int sum(const Asked& asked, int type) {
  switch (type) {
    case BLUEFOG_U8:
      return sumIntegers<uint8_t>(asked);
    case BLUEFOG_I8:
      return sumIntegers<int8_t>(asked);
    case BLUEFOG_I16:
      return sumIntegers<int16_t>(asked);
    case BLUEFOG_I32:
      return sumIntegers<int32_t>(asked);
    case BLUEFOG_I64:
      return sumIntegers<int64_t>(asked);
    default:
      return withFloating(type, [&](auto numbers) {
        using T = typename decltype(numbers)::Type;
        return sum<T, Computed<T>>(asked);
      });
  }
}

}  // namespace

int weightedSum(void* out, const void* const* inputs, const double* weights, int n, double divisor,
                size_t numel, int type, bluefog_stream stream) {
  if (n < 1 || n > BLUEFOG_MOST_INPUTS || inputs == nullptr || weights == nullptr) {
    return cudaErrorInvalidValue;
  }
  if (numel == 0) {
    return cudaSuccess;
  }
  if (out == nullptr || std::count(inputs, inputs + n, nullptr) > 0) {
    return cudaErrorInvalidValue;
  }
  const auto in = static_cast<cudaStream_t>(stream);
  return sum({out, inputs, weights, n, divisor, numel, in}, type);
}
