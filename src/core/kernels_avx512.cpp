#define BLUEFOG_KERNELS kKernelsAvx512
#include "core/kernels.inl"
