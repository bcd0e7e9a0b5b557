// What a library of kernels for a kind of device offers: plain C, so that one build serves every
// torch and Python, with CUDA or without. libbluefog_cuda.so knows neither.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BLUEFOG_DEVICE_API 1u

typedef void* bluefog_stream;  // of CUDA: a cudaStream_t

enum bluefog_type { BLUEFOG_F16, BLUEFOG_BF16, BLUEFOG_F32, BLUEFOG_F64 };

// Every function returns an error's number, 0 where all is well. Kernels are launched in the
// stream, on the calling thread's current device; all that they are told travels with the launch,
// so that they can be captured in a graph.
typedef struct bluefog_device_api {
  uint32_t version;  // BLUEFOG_DEVICE_API
  uint32_t size;     // of this struct
  const char* (*error_text)(int error);
  // Of the runtime in here and of the driver (0: there is none): 13000 is 13.0.
  int (*versions)(int* runtime, int* driver);
  int (*set_device)(int device);

  // out = (sum of weights[i] * inputs[i]) / divisor, term after term, of `numel` elements: in
  // double for BLUEFOG_F64, in float32 for the others, without fused multiply-add, as on the CPU.
  // `out` may be one of the inputs.
  int (*weighted_sum)(void* out, const void* const* inputs, const double* weights, int n,
                      double divisor, size_t numel, int type, bluefog_stream stream);
} bluefog_device_api;

// Null where it is not of that version.
const bluefog_device_api* bluefog_device_get(uint32_t version);
typedef const bluefog_device_api* (*bluefog_device_getter)(uint32_t version);

#ifdef __cplusplus
}
#endif
