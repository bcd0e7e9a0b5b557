// These kernels find the k numbers with the largest magnitudes. The bits of magnitudes are ordered
// as the magnitudes are, so the k-th largest is found digit by digit, by counting the elements that
// have each digit. Then the elements from it on are taken.
#include "device/cuda/top_k.cuh"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "device/cuda/errors.cuh"
#include "device/cuda/numbers.cuh"
#include "device/cuda/vectors.cuh"

namespace {

constexpr int kDigitBits = 11;
constexpr unsigned kDigits = 1u << kDigitBits;
constexpr unsigned kScanned = 1024;  // threads of a scan
constexpr unsigned kMostChunks = kScanned;
constexpr unsigned kWarp = 32;

// Counts says how many elements are larger than the k-th largest one, and how many equal it.
struct Counts {
  unsigned larger;
  unsigned equal;
};

struct Scratch {
  unsigned long long prefix;  // the digits of the k-th magnitude that are known
  unsigned wanted;            // elements with this prefix that are to be taken
  unsigned counts[kDigits];
  Counts before[kMostChunks];  // each chunk's own; later, of all chunks before it
};

__device__ unsigned magnitude(__half number) {
  return __half_as_ushort(number) & 0x7fffu;
}
__device__ unsigned magnitude(__nv_bfloat16 number) {
  return __bfloat16_as_ushort(number) & 0x7fffu;
}
__device__ unsigned magnitude(float number) {
  return __float_as_uint(number) & 0x7fffffffu;
}
__device__ unsigned long long magnitude(double number) {
  return static_cast<unsigned long long>(__double_as_longlong(number)) & ~(1ull << 63);
}

// A Scan holds the sum over the threads before this one, and the sum over all threads.
template <class T>
struct Scan {
  T before;
  T all;
};

template <unsigned threads, class T>
__device__ Scan<T> scan(T own) {
  __shared__ T of_warps[threads / kWarp];
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  T until = own;
  for (unsigned apart = 1; apart < kWarp; apart *= 2) {
    const T other = __shfl_up_sync(~0u, until, apart);
    until += lane >= apart ? other : 0;
  }
  __syncthreads();  // all threads have read the scan before
  if (lane == kWarp - 1) {
    of_warps[warp] = until;
  }
  __syncthreads();
  Scan<T> result{until - own, 0};
  for (unsigned i = 0; i < threads / kWarp; ++i) {
    result.before += i < warp ? of_warps[i] : 0;
    result.all += of_warps[i];
  }
  return result;
}

__global__ void begin(Scratch* scratch, unsigned k) {
  for (unsigned i = threadIdx.x; i < kDigits; i += blockDim.x) {
    scratch->counts[i] = 0;
  }
  if (threadIdx.x == 0) {
    scratch->prefix = 0;
    scratch->wanted = k;
  }
}

// Counts how often each next digit occurs among the elements that have the prefix.
template <class T, int width>
__global__ void countDigits(Scratch* scratch, const T* in, size_t numel, int shift, int bits) {
  __shared__ unsigned counts[kDigits];
  for (unsigned i = threadIdx.x; i < kDigits; i += blockDim.x) {
    counts[i] = 0;
  }
  __syncthreads();
  const auto prefix = scratch->prefix;
  const size_t stride = size_t(gridDim.x) * blockDim.x * width;
  for (size_t at = (size_t(blockIdx.x) * blockDim.x + threadIdx.x) * width; at < numel;
       at += stride) {
    forEachOf<width>(in, at, numel, [&](T number, size_t) {
      const unsigned long long key = magnitude(number) >> shift;
      if (key >> bits == prefix) {
        atomicAdd(&counts[key & ((1u << bits) - 1)], 1);
      }
    });
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; i < kDigits; i += blockDim.x) {
    if (counts[i] > 0) {
      atomicAdd(&scratch->counts[i], counts[i]);
    }
  }
}

// Chooses the digit at which a count from the largest one reaches the wanted elements. Each of
// kScanned threads adds up its own digits from the top.
__global__ void chooseDigit(Scratch* scratch, int bits) {
  constexpr unsigned kDigitsEach = kDigits / kScanned;
  const unsigned wanted = scratch->wanted;
  unsigned own[kDigitsEach];
  unsigned all_own = 0;
  for (unsigned i = 0; i < kDigitsEach; ++i) {
    unsigned& count = scratch->counts[kDigits - 1 - (threadIdx.x * kDigitsEach + i)];
    own[i] = count;
    all_own += count;
    count = 0;
  }
  // After the scan, all threads have also read what is wanted.
  unsigned before = scan<kScanned>(all_own).before;
  for (unsigned i = 0; i < kDigitsEach; ++i) {
    if (before < wanted && wanted <= before + own[i]) {
      scratch->prefix = scratch->prefix << bits | (kDigits - 1 - (threadIdx.x * kDigitsEach + i));
      scratch->wanted = wanted - before;
    }
    before += own[i];
  }
}

// Both counts are packed in one number, so that one scan adds them up. A tile has fewer than 2^16
// elements.
__device__ unsigned packed(bool larger, bool equal) {
  return larger + (unsigned(equal) << 16);
}
__device__ Counts unpacked(unsigned counts) {
  return {counts & 0xffffu, counts >> 16};
}

template <class T, int width>
__device__ unsigned countOwn(const T* in, size_t at, size_t end, unsigned long long threshold) {
  unsigned own = 0;
  forEachOf<width>(in, at, end, [&](T number, size_t) {
    own += packed(magnitude(number) > threshold, magnitude(number) == threshold);
  });
  return own;
}

// Counts the elements of each chunk. One block of threads handles a chunk of `chunk` elements tile
// by tile.
template <class T, int width>
__global__ void countChunks(Scratch* scratch, const T* in, size_t numel, size_t chunk) {
  const size_t end = min((blockIdx.x + 1) * chunk, numel);
  Counts own{};
  for (size_t at = blockIdx.x * chunk + size_t(threadIdx.x) * width; at < end;
       at += size_t(kThreads) * width) {
    const Counts found = unpacked(countOwn<T, width>(in, at, end, scratch->prefix));
    own.larger += found.larger;
    own.equal += found.equal;
  }
  const auto larger = scan<kThreads>(own.larger).all;
  const auto equal = scan<kThreads>(own.equal).all;
  if (threadIdx.x == 0) {
    scratch->before[blockIdx.x] = {larger, equal};
  }
}

__global__ void sumChunks(Scratch* scratch, unsigned chunks) {
  const Counts own = threadIdx.x < chunks ? scratch->before[threadIdx.x] : Counts{};
  const auto larger = scan<kScanned>(own.larger).before;
  const auto equal = scan<kScanned>(own.equal).before;
  scratch->before[threadIdx.x] = {larger, equal};
}

template <class T, int width>
__global__ void takeChunks(int32_t* places, float* numbers, const Scratch* scratch, const T* in,
                           size_t numel, size_t chunk) {
  const size_t end = min((blockIdx.x + 1) * chunk, numel);
  const auto threshold = scratch->prefix;
  const unsigned wanted = scratch->wanted;
  Counts before = scratch->before[blockIdx.x];
  for (size_t tile = blockIdx.x * chunk; tile < end; tile += size_t(kThreads) * width) {
    const size_t at = tile + size_t(threadIdx.x) * width;
    const auto found = scan<kThreads>(at < end ? countOwn<T, width>(in, at, end, threshold) : 0u);
    Counts own = unpacked(found.before);
    own = {before.larger + own.larger, before.equal + own.equal};
    forEachOf<width>(in, min(at, end), end, [&](T number, size_t place) {
      const bool larger = magnitude(number) > threshold;
      const bool equal = magnitude(number) == threshold;
      if (larger || (equal && own.equal < wanted)) {
        const unsigned to = own.larger + min(own.equal, wanted);
        places[to] = static_cast<int32_t>(place);
        numbers[to] = static_cast<float>(widened<Computed<T>>(number));
      }
      own.larger += larger;
      own.equal += equal;
    });
    const Counts all = unpacked(found.all);
    before = {before.larger + all.larger, before.equal + all.equal};
  }
}

template <class T, int width>
void select(void* message, const T* in, size_t numel, size_t k, Scratch* scratch,
            cudaStream_t stream) {
  constexpr size_t kTile = size_t(kThreads) * width;
  constexpr int kBits = 8 * sizeof(T) - 1;
  const auto places = static_cast<int32_t*>(message);
  const auto numbers = reinterpret_cast<float*>(places + k);
  begin<<<1, kScanned, 0, stream>>>(scratch, unsigned(k));
  for (int shift = kBits; shift > 0;) {
    const int bits = std::min(shift, kDigitBits);
    shift -= bits;
    countDigits<T, width><<<std::min(blocksFor(numel, kTile), kMostChunks), kThreads, 0, stream>>>(
        scratch, in, numel, shift, bits);
    chooseDigit<<<1, kScanned, 0, stream>>>(scratch, bits);
  }
  const size_t tiles = (numel + kTile - 1) / kTile;
  const size_t chunk = (tiles + kMostChunks - 1) / kMostChunks * kTile;
  const unsigned chunks = blocksFor(numel, chunk);
  countChunks<T, width><<<chunks, kThreads, 0, stream>>>(scratch, in, numel, chunk);
  sumChunks<<<1, kScanned, 0, stream>>>(scratch, chunks);
  takeChunks<T, width><<<chunks, kThreads, 0, stream>>>(places, numbers, scratch, in, numel, chunk);
}

template <class T>
__global__ void scatterAll(T* out, const int32_t* places, const float* numbers, size_t numel,
                           size_t k) {
  const size_t stride = size_t(gridDim.x) * blockDim.x;
  for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < k; i += stride) {
    if (static_cast<uint32_t>(places[i]) < numel) {  // another rank wrote the places
      narrow(numbers[i], out[places[i]]);
    }
  }
}

bool isUsable(const void* message, const void* numbers, size_t numel, size_t k) {
  return message != nullptr && numbers != nullptr && isAligned(message, sizeof(float)) &&
         numel <= size_t(std::numeric_limits<int32_t>::max()) && 0 < k && k <= numel;
}

}  // namespace

int topKScratch(size_t* bytes) {
  if (bytes == nullptr) {
    return cudaErrorInvalidValue;
  }
  *bytes = sizeof(Scratch);
  return cudaSuccess;
}

int topK(void* message, const void* in, int type, size_t numel, size_t k, void* scratch,
         bluefog_stream stream) {
  if (!isUsable(message, in, numel, k) || scratch == nullptr || !isAligned(scratch)) {
    return cudaErrorInvalidValue;
  }
  return withFloating(type, [&](auto numbers) {
    using T = typename decltype(numbers)::Type;
    const auto launch = isAligned(in) ? select<T, kWidth<T>> : select<T, 1>;
    launch(message, static_cast<const T*>(in), numel, k, static_cast<Scratch*>(scratch),
           static_cast<cudaStream_t>(stream));
    return launched();
  });
}

int scatter(void* out, int type, const void* message, size_t numel, size_t k,
            bluefog_stream stream) {
  if (!isUsable(message, out, numel, k)) {
    return cudaErrorInvalidValue;
  }
  return withFloating(type, [&](auto numbers) -> int {
    using T = typename decltype(numbers)::Type;
    const auto in = static_cast<cudaStream_t>(stream);
    if (const int error = told(cudaMemsetAsync(out, 0, numel * sizeof(T), in))) {
      return error;
    }
    const auto places = static_cast<const int32_t*>(message);
    scatterAll<<<blocksFor(k), kThreads, 0, in>>>(
        static_cast<T*>(out), places, reinterpret_cast<const float*>(places + k), numel, k);
    return launched();
  });
}
