// These kernels quantize to int8: each block of numbers becomes one scale and one byte per number.
// The file is compiled with --fmad=false.
#include "device/cuda/blocks.cuh"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "device/cuda/errors.cuh"
#include "device/cuda/numbers.cuh"
#include "device/cuda/vectors.cuh"

namespace {

constexpr float kLargest = 127;
constexpr float kLeastScale = 1e-38f;
constexpr int kWarp = 32;
constexpr size_t kOfOneWarp = 4096;  // one warp handles a block of at most so many numbers

struct BlockShape {
  size_t numel;
  size_t block;

  __host__ __device__ size_t blocks() const { return (numel + block - 1) / block; }
};

struct QuantizedMessage {
  float* scales;
  int8_t* numbers;
};

QuantizedMessage messageAt(void* memory, const BlockShape& shape) {
  const auto scales = static_cast<float*>(memory);
  return {scales, reinterpret_cast<int8_t*>(scales + shape.blocks())};
}

// Bytes holds some quantized numbers. It is aligned no better than a float32, because the numbers
// follow any number of scales.
template <int n>
struct alignas(std::min(n, 4)) Bytes {
  int8_t values[n];
};

// Returns bits that are ordered as the magnitudes are, with NaN as the largest.
__device__ unsigned magnitude(float number) {
  return __float_as_uint(fabsf(number));
}

template <class T>
__device__ float single(T number) {
  return static_cast<float>(widened<Computed<T>>(number));
}

__device__ unsigned largestOfWarp(unsigned own) {
  for (int apart = kWarp / 2; apart > 0; apart /= 2) {
    own = max(own, __shfl_xor_sync(~0u, own, apart));
  }
  return own;
}

template <int group>
__device__ unsigned largest(unsigned own) {
  own = largestOfWarp(own);
  if constexpr (group > kWarp) {
    __shared__ unsigned of_warps[group / kWarp];
    __syncthreads();  // all threads have read the block before
    of_warps[threadIdx.x / kWarp] = own;
    __syncthreads();
    for (int warp = 0; warp < group / kWarp; ++warp) {
      own = max(own, of_warps[warp]);
    }
  }
  return own;
}

__device__ int8_t rounded(float number, float scale) {
  return static_cast<int8_t>(rintf(number / scale));
}

// Gives each group of threads one block of numbers after the other, and calls each(block, thread's
// index in its group).
template <int group, class Each>
__device__ void forEachBlock(const BlockShape& shape, const Each& each) {
  constexpr unsigned kGroups = kThreads / group;
  const size_t first = size_t(blockIdx.x) * kGroups + threadIdx.x / group;
  for (size_t i = first; i < shape.blocks(); i += size_t(gridDim.x) * kGroups) {
    each(i, threadIdx.x % group);
  }
}

template <class T, int width, int group>
__global__ void quantizeAll(QuantizedMessage message, const T* in, BlockShape shape) {
  constexpr size_t kStride = size_t(group) * width;
  forEachBlock<group>(shape, [&](size_t i, size_t thread) {
    const size_t begin = i * shape.block;
    const size_t end = min(begin + shape.block, shape.numel);
    unsigned most = 0;
    for (size_t at = begin + thread * width; at < end; at += kStride) {
      forEachOf<width>(in, at, end,
                       [&](T number, size_t) { most = max(most, magnitude(single(number))); });
    }
    const float scale = __uint_as_float(largest<group>(most)) / kLargest;
    if (thread == 0) {
      message.scales[i] = scale;
    }
    // A NaN scale stays NaN in this comparison.
    const float by = scale < kLeastScale ? kLeastScale : scale;
    for (size_t at = begin + thread * width; at < begin + shape.block; at += kStride) {
      Bytes<width> bytes{};
      forEachOf<width>(in, at, end, [&](T number, size_t place) {
        bytes.values[place - at] = rounded(single(number), by);
      });
      reinterpret_cast<Bytes<width>&>(message.numbers[at]) = bytes;
    }
  });
}

template <class T, int width, int group>
__global__ void dequantizeAll(T* out, QuantizedMessage message, BlockShape shape) {
  constexpr size_t kStride = size_t(group) * width;
  forEachBlock<group>(shape, [&](size_t i, size_t thread) {
    const float scale = message.scales[i];
    const size_t begin = i * shape.block;
    const size_t end = min(begin + shape.block, shape.numel);
    for (size_t at = begin + thread * width; at < end; at += kStride) {
      const auto bytes = reinterpret_cast<const Bytes<width>&>(message.numbers[at]);
      Vector<T, width> numbers;
#pragma unroll
      for (int k = 0; k < width; ++k) {
        narrow(bytes.values[k] * scale, numbers.values[k]);
      }
      if (at + width <= end) {
        vectorAt<T, width>(out + at, 0) = numbers;
      } else {
#pragma unroll
        for (int k = 0; k < width; ++k) {
          if (at + k < end) {
            out[at + k] = numbers.values[k];
          }
        }
      }
    }
  });
}

// Calls launch(width, group) with the vector width and the group size as types. It uses vectors
// where all blocks begin on a vector's boundary.
template <class T, class Launch>
int withLayout(const T* numbers, size_t block, const Launch& launch) {
  const auto withWidth = [&](auto width) {
    return block <= kOfOneWarp ? launch(width, std::integral_constant<int, kWarp>())
                               : launch(width, std::integral_constant<int, kThreads>());
  };
  return isAligned(numbers) && block % kWidth<T> == 0
             ? withWidth(std::integral_constant<int, kWidth<T>>())
             : withWidth(std::integral_constant<int, 1>());
}

bool isUsable(const void* message, const void* numbers, const BlockShape& shape) {
  return shape.block > 0 && shape.block < SIZE_MAX / 2 && message != nullptr &&
         numbers != nullptr && isAligned(message, sizeof(float));
}

}  // namespace

int quantize(void* message, const void* in, int type, size_t numel, size_t block,
             bluefog_stream stream) {
  return withFloating(type, [&](auto numbers) -> int {
    using T = typename decltype(numbers)::Type;
    const BlockShape shape{numel, block};
    if (numel == 0) {
      return cudaSuccess;
    }
    if (!isUsable(message, in, shape)) {
      return cudaErrorInvalidValue;
    }
    const auto from = static_cast<const T*>(in);
    return withLayout(from, block, [&](auto width, auto group) {
      constexpr int kGroup = decltype(group)::value;
      const unsigned blocks = blocksFor(shape.blocks(), kThreads / kGroup);
      quantizeAll<T, decltype(width)::value, kGroup>
          <<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(messageAt(message, shape),
                                                                       from, shape);
      return launched();
    });
  });
}

int dequantize(void* out, int type, const void* message, size_t numel, size_t block,
               bluefog_stream stream) {
  return withFloating(type, [&](auto numbers) -> int {
    using T = typename decltype(numbers)::Type;
    const BlockShape shape{numel, block};
    if (numel == 0) {
      return cudaSuccess;
    }
    if (!isUsable(message, out, shape)) {
      return cudaErrorInvalidValue;
    }
    const auto to = static_cast<T*>(out);
    const QuantizedMessage from = messageAt(const_cast<void*>(message), shape);
    return withLayout(to, block, [&](auto width, auto group) {
      constexpr int kGroup = decltype(group)::value;
      const unsigned blocks = blocksFor(shape.blocks(), kThreads / kGroup);
      dequantizeAll<T, decltype(width)::value, kGroup>
          <<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(to, from, shape);
      return launched();
    });
  });
}
