#include "device/api.h"

#include <cuda_runtime.h>

#include "device/cuda/blocks.cuh"
#include "device/cuda/cast.cuh"
#include "device/cuda/errors.cuh"
#include "device/cuda/handles.cuh"
#include "device/cuda/memory.cuh"
#include "device/cuda/streams.cuh"
#include "device/cuda/top_k.cuh"
#include "device/cuda/weighted_sum.cuh"

namespace {

const char* errorText(int error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

int versions(int* runtime, int* driver) {
  if (runtime == nullptr || driver == nullptr) {
    return cudaErrorInvalidValue;
  }
  const int error = told(cudaRuntimeGetVersion(runtime));
  return error != cudaSuccess ? error : told(cudaDriverGetVersion(driver));
}

int setDevice(int device) {
  return told(cudaSetDevice(device));
}

constexpr bluefog_device_api kApi{
    BLUEFOG_DEVICE_API,
    sizeof(bluefog_device_api),
    errorText,
    versions,
    setDevice,
    createStream,
    destroyStream,
    waitForStream,
    ignoreCaptures,
    streamIsCapturing,
    allocate,
    release,
    allocateHost,
    releaseHost,
    copy,
    zero,
    share,
    openShared,
    closeShared,
    weightedSum,
    cast,
    quantize,
    dequantize,
    topKScratch,
    topK,
    scatter,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const bluefog_device_api* bluefog_device_get(
    uint32_t version) {
  return version == BLUEFOG_DEVICE_API ? &kApi : nullptr;
}
