#include "device/cuda/handles.cuh"

#include <cuda_runtime.h>

#include <cstring>

#include "device/cuda/capture.cuh"
#include "device/cuda/errors.cuh"

static_assert(sizeof(bluefog_handle) == sizeof(cudaIpcMemHandle_t));

int share(void* memory, bluefog_handle* handle) {
  if (memory == nullptr || handle == nullptr) {
    return cudaErrorInvalidValue;
  }
  const BesideCaptures beside;
  cudaIpcMemHandle_t found;
  const int error = told(cudaIpcGetMemHandle(&found, memory));
  if (error == cudaSuccess) {
    std::memcpy(handle, &found, sizeof found);
  }
  return error;
}

int openShared(const bluefog_handle* handle, void** memory) {
  if (handle == nullptr || memory == nullptr) {
    return cudaErrorInvalidValue;
  }
  const BesideCaptures beside;
  cudaIpcMemHandle_t found;
  std::memcpy(&found, handle, sizeof found);
  return told(cudaIpcOpenMemHandle(memory, found, cudaIpcMemLazyEnablePeerAccess));
}

int closeShared(void* memory) {
  if (memory == nullptr) {
    return cudaErrorInvalidValue;
  }
  const BesideCaptures beside;
  return told(cudaIpcCloseMemHandle(memory));
}
