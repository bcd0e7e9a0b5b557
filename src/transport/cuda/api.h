// What libbluefog_cuda.so offers: plain C, so that one build serves every torch and Python, with
// CUDA or without. It knows neither: nvcc and a CUDA driver are all it needs.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BLUEFOG_CUDA_API 1u

typedef void* bluefog_stream;  // a cudaStream_t

enum bluefog_type { BLUEFOG_F16, BLUEFOG_BF16, BLUEFOG_F32, BLUEFOG_F64 };

// Every function returns a cudaError_t, 0 where all is well. Kernels are launched in the stream, on
// the calling thread's current device, and can be captured in a graph: all that they are told
// travels with the launch.
typedef struct bluefog_cuda_api {
  uint32_t version;  // BLUEFOG_CUDA_API
  uint32_t size;     // of this struct
  const char* (*error_text)(int error);
  // Of the runtime in here and of the driver: 13000 is 13.0.
  int (*versions)(int* runtime, int* driver);
  int (*set_device)(int device);

  // out = (sum of weights[i] * inputs[i]) / divisor, term after term, of `numel` elements: in
  // double for BLUEFOG_F64, in float32 for the others, without fused multiply-add, as on the CPU.
  // `out` may be one of the inputs.
  int (*weighted_sum)(void* out, const void* const* inputs, const double* weights, int n,
                      double divisor, size_t numel, int type, bluefog_stream stream);
} bluefog_cuda_api;

// Null where it is not of that version.
const bluefog_cuda_api* bluefog_cuda_get(uint32_t version);
typedef const bluefog_cuda_api* (*bluefog_cuda_getter)(uint32_t version);

#ifdef __cplusplus
}
#endif
