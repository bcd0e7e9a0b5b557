#pragma once

#include "device/api.h"

int quantize(void* message, const void* in, int type, size_t numel, size_t block,
             bluefog_stream stream);
int dequantize(void* out, int type, const void* message, size_t numel, size_t block,
               bluefog_stream stream);
