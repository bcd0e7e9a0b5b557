#include "device/cuda/cast.cuh"

#include <cuda_runtime.h>

#include <algorithm>
#include <cfloat>
#include <type_traits>

#include "device/cuda/errors.cuh"
#include "device/cuda/numbers.cuh"
#include "device/cuda/vectors.cuh"

namespace {

template <class T>
constexpr float kLargest = FLT_MAX;
template <>
constexpr float kLargest<__half> = 65504.0f;
template <>
constexpr float kLargest<__nv_bfloat16> = 0x1.fep127f;

// Returns the number within the finite range of To. NaN stays NaN.
template <class To>
__device__ float limited(float number) {
  return number > kLargest<To> ? kLargest<To> : number < -kLargest<To> ? -kLargest<To> : number;
}

template <class To, class From>
__device__ void convert(From from, To& to) {
  if constexpr (std::is_same_v<To, double>) {
    const auto number = widened<Computed<From>>(from);
    to = number > DBL_MAX ? DBL_MAX : number < -DBL_MAX ? -DBL_MAX : number;
  } else {
    narrow(limited<To>(static_cast<float>(widened<Computed<From>>(from))), to);
  }
}

template <class To, class From, int width>
__global__ void convertAll(To* out, const From* in, size_t vectors) {
  const size_t stride = size_t(gridDim.x) * blockDim.x;
  for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < vectors; i += stride) {
    const auto from = vectorAt<From, width>(in, i);
    Vector<To, width> to;
#pragma unroll
    for (int k = 0; k < width; ++k) {
      convert(from.values[k], to.values[k]);
    }
    vectorAt<To, width>(out, i) = to;
  }
}

template <class To, class From>
int launch(To* out, const From* in, size_t numel, cudaStream_t stream) {
  constexpr int width = std::max(kWidth<To>, kWidth<From>);
  const size_t vectors = isAligned(out) && isAligned(in) ? numel / width : 0;
  const size_t done = vectors * width;
  if (vectors > 0) {
    convertAll<To, From, width><<<blocksFor(vectors), kThreads, 0, stream>>>(out, in, vectors);
  }
  if (done < numel) {
    convertAll<To, From, 1>
        <<<blocksFor(numel - done), kThreads, 0, stream>>>(out + done, in + done, numel - done);
  }
  return launched();
}

}  // namespace

int cast(void* out, int out_type, const void* in, int in_type, size_t numel,
         bluefog_stream stream) {
  if (numel > 0 && (out == nullptr || in == nullptr)) {
    return cudaErrorInvalidValue;
  }
  return withFloating(out_type, [&](auto to) {
    return withFloating(in_type, [&](auto from) {
      using To = typename decltype(to)::Type;
      using From = typename decltype(from)::Type;
      return numel == 0 ? cudaSuccess
                        : launch(static_cast<To*>(out), static_cast<const From*>(in), numel,
                                 static_cast<cudaStream_t>(stream));
    });
  });
}
