#pragma once

#include "device/api.h"

int topKScratch(size_t* bytes);
int topK(void* message, const void* in, int type, size_t numel, size_t k, void* scratch,
         bluefog_stream stream);
int scatter(void* out, int type, const void* message, size_t numel, size_t k,
            bluefog_stream stream);
