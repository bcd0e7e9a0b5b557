#include "device/cuda/streams.cuh"

#include <cuda_runtime.h>

#include "device/cuda/capture.cuh"
#include "device/cuda/errors.cuh"

namespace {

// Returns the stream as CUDA's type. Null is CUDA's default stream, which waits for other streams.
cudaStream_t asCuda(bluefog_stream stream) {
  return static_cast<cudaStream_t>(stream);
}

}  // namespace

int createStream(bluefog_stream* stream) {
  if (stream == nullptr) {
    return cudaErrorInvalidValue;
  }
  return told(
      cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t*>(stream), cudaStreamNonBlocking));
}

int destroyStream(bluefog_stream stream) {
  return stream == nullptr ? cudaErrorInvalidValue : told(cudaStreamDestroy(asCuda(stream)));
}

int waitForStream(bluefog_stream stream) {
  const BesideCaptures beside;
  // Waiting for a stream that is being captured would end the capture.
  int is_capturing = 0;
  const int error = streamIsCapturing(stream, &is_capturing);
  if (error != cudaSuccess) {
    return error;
  }
  return is_capturing ? cudaErrorStreamCaptureUnsupported
                      : told(cudaStreamSynchronize(asCuda(stream)));
}

int ignoreCaptures() {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  return told(cudaThreadExchangeStreamCaptureMode(&mode));
}

int streamIsCapturing(bluefog_stream stream, int* is_capturing) {
  if (is_capturing == nullptr) {
    return cudaErrorInvalidValue;
  }
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const int error = told(cudaStreamIsCapturing(asCuda(stream), &status));
  *is_capturing = status != cudaStreamCaptureStatusNone;
  return error;
}
