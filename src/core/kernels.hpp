#pragma once

#include <cstddef>

#include "core/Dtype.hpp"
#include "core/Reduce.hpp"

namespace bluefog {

// Kernels is a table of functions that were compiled from one source (kernels.inl) for one
// instruction set. Reduce.cpp picks the table for this machine.
struct Kernels {
  void (*copy)(void* to, const void* from, size_t bytes, Stores stores);
  void (*fold)(Dtype dtype, ReduceKind kind, void* out, const void* const* inputs, size_t inputs_n,
               size_t count);
  void (*weightedSum)(Dtype dtype, void* out, const void* const* inputs, const double* weights,
                      size_t inputs_n, double divisor, size_t count, Stores stores);
};

extern const Kernels kKernelsBaseline;
extern const Kernels kKernelsAvx2;
extern const Kernels kKernelsAvx512;

}  // namespace bluefog
