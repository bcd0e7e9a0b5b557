// This is the interface of a library of kernels for one kind of device. It is plain C, so that one
// build serves every torch and Python, with CUDA or without. libbluefog_cuda.so depends on neither
// of them.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BLUEFOG_DEVICE_API 2u
#define BLUEFOG_MOST_INPUTS 2000  // the most inputs of one weighted_sum()

typedef void* bluefog_stream;  // a cudaStream_t of CUDA

// Other processes of the host find a block of memory by this handle.
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

// Every function returns the number of an error, or 0 where all is well. Kernels are launched in
// the stream, on the calling thread's current device. All their arguments travel with the launch,
// so that they can be captured in a graph.
typedef struct bluefog_device_api {
  uint32_t version;  // BLUEFOG_DEVICE_API
  uint32_t size;     // bytes of this struct
  const char* (*error_text)(int error);
  // Tells the versions of the library's runtime and of the driver: 13000 is 13.0, and 0 is no
  // driver.
  int (*versions)(int* runtime, int* driver);
  int (*set_device)(int device);

  // These streams wait for no other stream. A stream that is being captured cannot be waited for.
  int (*stream_create)(bluefog_stream* stream);
  int (*stream_destroy)(bluefog_stream stream);
  int (*stream_wait)(bluefog_stream stream);  // waits for all that was put there
  // From now on, nothing that the calling thread does disturbs a capture of another thread.
  int (*ignore_captures)(void);
  int (*stream_is_capturing)(bluefog_stream stream, int* is_capturing);

  // Blocks come from no pool, so that each of them can be shared.
  int (*allocate)(void** memory, size_t bytes);
  int (*release)(void* memory);
  // This memory of the host is page-locked, so that the device copies to and from it by itself.
  int (*allocate_host)(void** memory, size_t bytes);
  int (*release_host)(void* memory);
  // Copies between any two places of the host and the device.
  int (*copy)(void* to, const void* from, size_t bytes, bluefog_stream stream);
  int (*zero)(void* memory, size_t bytes, bluefog_stream stream);

  // The function share() returns a handle for memory from allocate(). Other processes of this host
  // open it on their current device, and must close it before its owner releases the memory.
  int (*share)(void* memory, bluefog_handle* handle);
  int (*open)(const bluefog_handle* handle, void** memory);
  int (*close)(void* memory);

  // out = (sum of weights[i] * inputs[i]) / divisor, for `numel` elements, added in the order of
  // the inputs. There is no fused multiply-add, as on the CPU. Sums are formed in double for
  // BLUEFOG_F64 and in float32 for the other floating types. Integers are exact where all weights
  // and the divisor are 1. Otherwise they are summed in double and rounded toward zero. `out` may
  // be one of the inputs.
  int (*weighted_sum)(void* out, const void* const* inputs, const double* weights, int n,
                      double divisor, size_t numel, int type, bluefog_stream stream);

  // Converts numbers to another floating type, through float32 unless both types are wider. A
  // number beyond the range of that type becomes its largest finite number.
  int (*cast)(void* out, int out_type, const void* in, int in_type, size_t numel,
              bluefog_stream stream);

  // These functions make the messages of optim/compression.py from numbers of floating types. A
  // message must be aligned like a float32.
  // Int8: a float32 scale for each block of numbers, amax / 127, and a byte for each number,
  // rint(number / max(scale, 1e-38)). The last block is filled up with zeros.
  int (*quantize)(void* message, const void* in, int type, size_t numel, size_t block,
                  bluefog_stream stream);
  int (*dequantize)(void* out, int type, const void* message, size_t numel, size_t block,
                    bluefog_stream stream);
  // TopK: the places of the k numbers with the largest magnitudes, as ascending int32, and then the
  // numbers as float32. Among equal magnitudes, the first ones win. scatter() is the inverse, and
  // writes zeros elsewhere.
  int (*top_k_scratch)(size_t* bytes);  // bytes that top_k needs, aligned to 16
  int (*top_k)(void* message, const void* in, int type, size_t numel, size_t k, void* scratch,
               bluefog_stream stream);
  int (*scatter)(void* out, int type, const void* message, size_t numel, size_t k,
                 bluefog_stream stream);
} bluefog_device_api;

// Returns null where the library does not have that version of the interface.
const bluefog_device_api* bluefog_device_get(uint32_t version);
typedef const bluefog_device_api* (*bluefog_device_getter)(uint32_t version);

#ifdef __cplusplus
}
#endif
