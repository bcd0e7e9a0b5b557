#pragma once

#include "device/api.h"

int cast(void* out, int out_type, const void* in, int in_type, size_t numel, bluefog_stream stream);
