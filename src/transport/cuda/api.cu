#include "transport/device/api.h"

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

constexpr bluefog_device_api kApi{
    BLUEFOG_DEVICE_API, sizeof(bluefog_device_api), errorText, versions, setDevice, weightedSum,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const bluefog_device_api* bluefog_device_get(
    uint32_t version) {
  return version == BLUEFOG_DEVICE_API ? &kApi : nullptr;
}
