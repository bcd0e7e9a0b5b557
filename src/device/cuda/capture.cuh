#pragma once

#include <cuda_runtime.h>

#include "device/cuda/errors.cuh"

// While a BesideCaptures lives, its thread may make calls that take effect immediately, such as
// allocations, while another thread captures a graph. Without it such a call would end that
// capture.
class BesideCaptures {
 public:
  BesideCaptures() { exchange(); }
  ~BesideCaptures() { exchange(); }
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  void exchange() { told(cudaThreadExchangeStreamCaptureMode(&mode_)); }

  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};
