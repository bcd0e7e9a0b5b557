#pragma once

#include <cuda_runtime.h>

#include "device/api.h"

int weightedSum(void* out, const void* const* inputs, const double* weights, int n, double divisor,
                size_t numel, int type, bluefog_stream stream);
