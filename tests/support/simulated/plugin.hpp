// These are the functions of the simulated accelerator's kernels, memory and messages. device/api.h
// describes them.
#pragma once

#include <cstddef>

#include "device/api.h"

namespace simulated {

const char* errorText(int error);
int createStream(bluefog_stream* out);
int destroyStream(bluefog_stream stream);
int waitForStream(bluefog_stream stream);
int ignoreCaptures();
int isCapturing(bluefog_stream stream, int* is_capturing);
int allocate(void** out, size_t bytes);
int release(void* memory);
int allocateHost(void** out, size_t bytes);
int releaseHost(void* memory);
int copy(void* to, const void* from, size_t bytes, bluefog_stream stream);
int zero(void* memory, size_t bytes, bluefog_stream stream);
int share(void* memory, bluefog_handle* out);
int open(const bluefog_handle* given, void** out);
int close(void* memory);

int cast(void* out, int out_type, const void* in, int in_type, size_t numel, bluefog_stream stream);
int quantize(void* message, const void* in, int type, size_t numel, size_t block,
             bluefog_stream stream);
int dequantize(void* out, int type, const void* message, size_t numel, size_t block,
               bluefog_stream stream);
int topKScratch(size_t* bytes);
int topK(void* message, const void* in, int type, size_t numel, size_t k, void* scratch,
         bluefog_stream stream);
int scatter(void* out, int type, const void* message, size_t numel, size_t k,
            bluefog_stream stream);

}  // namespace simulated
