#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "device/api.h"

// Computed is the type in which sums and scales of numbers are formed.
template <class T>
using Computed = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class Wide, class T>
__device__ Wide widened(T value) {
  return static_cast<Wide>(value);
}
template <>
inline __device__ float widened<float>(__half value) {
  return __half2float(value);
}
template <>
inline __device__ float widened<float>(__nv_bfloat16 value) {
  return __bfloat162float(value);
}

// Converts a result to the type of the elements. Integers go through the widest type, so that a
// number beyond their range is cut off as on the CPU.
template <class Wide, class T>
__device__ void narrow(Wide from, T& to) {
  if constexpr (std::is_integral_v<T> && std::is_floating_point_v<Wide>) {
    to = static_cast<T>(static_cast<long long>(from));
  } else {
    to = static_cast<T>(from);
  }
}
inline __device__ void narrow(float from, __half& to) {
  to = __float2half_rn(from);
}
inline __device__ void narrow(float from, __nv_bfloat16& to) {
  to = __float2bfloat16_rn(from);
}

template <class T>
struct TypeTag {
  using Type = T;
};

// Calls use(TypeTag<T>()) for a floating type, and refuses other types.
template <class Use>
int withFloating(int type, const Use& use) {
  switch (type) {
    case BLUEFOG_F16:
      return use(TypeTag<__half>());
    case BLUEFOG_BF16:
      return use(TypeTag<__nv_bfloat16>());
    case BLUEFOG_F32:
      return use(TypeTag<float>());
    case BLUEFOG_F64:
      return use(TypeTag<double>());
    default:
      return cudaErrorInvalidValue;
  }
}
