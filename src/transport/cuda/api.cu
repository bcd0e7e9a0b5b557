#include "transport/cuda/api.h"

#include <cuda_runtime.h>

#include "transport/cuda/weighted_sum.cuh"

namespace {

const char* errorText(int error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

int versions(int* runtime, int* driver) {
  const cudaError_t error = cudaRuntimeGetVersion(runtime);
  return error != cudaSuccess ? error : cudaDriverGetVersion(driver);
}

int setDevice(int device) {
  return cudaSetDevice(device);
}

constexpr bluefog_cuda_api kApi{
    BLUEFOG_CUDA_API, sizeof(bluefog_cuda_api), errorText, versions, setDevice, weightedSum,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const bluefog_cuda_api* bluefog_cuda_get(
    uint32_t version) {
  return version == BLUEFOG_CUDA_API ? &kApi : nullptr;
}
