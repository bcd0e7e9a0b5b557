#pragma once

#include <cuda_runtime.h>

#include "device/cuda/errors.cuh"

// While it lives, this thread may do what takes effect at once, such as to allocate, though another
// one is capturing a graph: that capture would end.
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
