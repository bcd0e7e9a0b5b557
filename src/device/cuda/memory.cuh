#pragma once

#include "device/api.h"

int allocate(void** memory, size_t bytes);
int release(void* memory);
int allocateHost(void** memory, size_t bytes);
int releaseHost(void* memory);
int copy(void* to, const void* from, size_t bytes, bluefog_stream stream);
int zero(void* memory, size_t bytes, bluefog_stream stream);
