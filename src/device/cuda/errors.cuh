#pragma once

#include <cuda_runtime.h>

// The runtime would tell a failed call's error again to whoever asks next.
inline int told(cudaError_t error) {
  if (error != cudaSuccess) {
    cudaGetLastError();
  }
  return error;
}

inline int launched() {
  return cudaGetLastError();
}
