#define BLUEFOG_KERNELS kKernelsAvx2
#include "core/kernels.inl"
