// What a library of kernels for a kind of device offers: plain C, so that one build serves every
// torch and Python, with CUDA or without. libbluefog_cuda.so knows neither.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BLUEFOG_DEVICE_API 2u
#define BLUEFOG_MOST_INPUTS 2000  // of one weighted_sum()

typedef void* bluefog_stream;  // of CUDA: a cudaStream_t

// What other processes of the host find a block of memory by.
typedef struct bluefog_handle {
  unsigned char bytes[64];
} bluefog_handle;

enum bluefog_type {
  BLUEFOG_F16,
  BLUEFOG_BF16,
  BLUEFOG_F32,
  BLUEFOG_F64,
  BLUEFOG_U8,
  BLUEFOG_I8,
  BLUEFOG_I16,
  BLUEFOG_I32,
  BLUEFOG_I64
};

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

  // Streams that wait for no other. What is being captured in a graph cannot be waited for.
  int (*stream_create)(bluefog_stream* stream);
  int (*stream_destroy)(bluefog_stream stream);
  int (*stream_wait)(bluefog_stream stream);  // until all that was put there has ended
  // From now on nothing that the calling thread does disturbs another one's capture.
  int (*ignore_captures)(void);
  int (*stream_is_capturing)(bluefog_stream stream, int* is_capturing);

  // Blocks of their own, so that they can be shared: not of any pool.
  int (*allocate)(void** memory, size_t bytes);
  int (*release)(void* memory);
  // Of the host, where copies need no help of the processor.
  int (*allocate_host)(void** memory, size_t bytes);
  int (*release_host)(void* memory);
  // From anywhere to anywhere.
  int (*copy)(void* to, const void* from, size_t bytes, bluefog_stream stream);
  int (*zero)(void* memory, size_t bytes, bluefog_stream stream);

  // Has other processes of this host find what allocate() gave; they open it on their current
  // device, and close it before its owner releases it.
  int (*share)(void* memory, bluefog_handle* handle);
  int (*open)(const bluefog_handle* handle, void** memory);
  int (*close)(void* memory);

  // out = (sum of weights[i] * inputs[i]) / divisor, term after term, of `numel` elements, without
  // fused multiply-add, as on the CPU: in double for BLUEFOG_F64, in float32 for the other floating
  // types. Integers are exact where all weights and the divisor are 1; otherwise they are summed in
  // double and rounded towards zero. `out` may be one of the inputs.
  int (*weighted_sum)(void* out, const void* const* inputs, const double* weights, int n,
                      double divisor, size_t numel, int type, bluefog_stream stream);

  // Numbers in another floating type, by way of float32 unless both are wider; what is beyond its
  // range becomes its largest finite number.
  int (*cast)(void* out, int out_type, const void* in, int in_type, size_t numel,
              bluefog_stream stream);

  // The messages of optim/compression.py, of floating types. They begin where a float32 may.
  // Int8: a float32 scale for each block of numbers, amax / 127, and a byte for each number,
  // rint(number / max(scale, 1e-38)); the last block is filled up with zeros.
  int (*quantize)(void* message, const void* in, int type, size_t numel, size_t block,
                  bluefog_stream stream);
  int (*dequantize)(void* out, int type, const void* message, size_t numel, size_t block,
                    bluefog_stream stream);
  // TopK: where the k numbers of the largest magnitudes are, int32 and ascending, of equal ones the
  // first; and the numbers, float32. scatter() is its inverse: zeros elsewhere.
  int (*top_k_scratch)(size_t* bytes);  // that top_k needs, aligned to 16
  int (*top_k)(void* message, const void* in, int type, size_t numel, size_t k, void* scratch,
               bluefog_stream stream);
  int (*scatter)(void* out, int type, const void* message, size_t numel, size_t k,
                 bluefog_stream stream);
} bluefog_device_api;

// Null where it is not of that version.
const bluefog_device_api* bluefog_device_get(uint32_t version);
typedef const bluefog_device_api* (*bluefog_device_getter)(uint32_t version);

#ifdef __cplusplus
}
#endif
