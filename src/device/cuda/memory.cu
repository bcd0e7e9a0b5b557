#include "device/cuda/memory.cuh"

#include <cuda_runtime.h>

#include <algorithm>
#include <limits>

#include "device/cuda/capture.cuh"
#include "device/cuda/errors.cuh"

namespace {

// Whole physical blocks are shared, so a smaller allocation would show its neighbors to other
// processes.
constexpr size_t kPhysicalBlock = size_t(2) << 20;

}  // namespace

int allocate(void** memory, size_t bytes) {
  if (memory == nullptr) {
    return cudaErrorInvalidValue;
  }
  if (bytes > std::numeric_limits<size_t>::max() - kPhysicalBlock) {
    return cudaErrorMemoryAllocation;
  }
  const BesideCaptures beside;
  const size_t blocks = (std::max<size_t>(bytes, 1) + kPhysicalBlock - 1) / kPhysicalBlock;
  return told(cudaMalloc(memory, blocks * kPhysicalBlock));
}

int release(void* memory) {
  if (memory == nullptr) {
    return cudaSuccess;
  }
  const BesideCaptures beside;
  return told(cudaFree(memory));
}

int allocateHost(void** memory, size_t bytes) {
  if (memory == nullptr) {
    return cudaErrorInvalidValue;
  }
  const BesideCaptures beside;
  return told(cudaHostAlloc(memory, std::max<size_t>(bytes, 1), cudaHostAllocPortable));
}

int releaseHost(void* memory) {
  if (memory == nullptr) {
    return cudaSuccess;
  }
  const BesideCaptures beside;
  return told(cudaFreeHost(memory));
}

int copy(void* to, const void* from, size_t bytes, bluefog_stream stream) {
  if (bytes == 0) {
    return cudaSuccess;
  }
  if (to == nullptr || from == nullptr) {
    return cudaErrorInvalidValue;
  }
  return told(
      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)));
}

int zero(void* memory, size_t bytes, bluefog_stream stream) {
  if (bytes == 0) {
    return cudaSuccess;
  }
  if (memory == nullptr) {
    return cudaErrorInvalidValue;
  }
  return told(cudaMemsetAsync(memory, 0, bytes, static_cast<cudaStream_t>(stream)));
}
