#pragma once

#include <cuda_runtime.h>

// Returns the error of a call and clears it, because the runtime would report it again to the next
// caller that asks.
inline int told(cudaError_t error) {
  if (error != cudaSuccess) {
    cudaGetLastError();
  }
  return error;
}

inline int launched() {
  return cudaGetLastError();
}
