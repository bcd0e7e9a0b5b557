#define BLUEFOG_KERNELS kKernelsBaseline
#include "core/kernels.inl"
