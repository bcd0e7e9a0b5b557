#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/Dtype.hpp"

namespace bluefog {

enum class ReduceKind : uint8_t {
  kNone,
  kSum,
  kAverage,
  kProduct,
  kMin,
  kMax,
  kBitAnd,
  kBitOr,
  kBitXor,
  kPremulSum  // each rank's input times its own factor: see weightedSum
};

const char* name(ReduceKind kind);

// out[i] = inputs[0][i] op inputs[1][i] op ..., always in that order, so that equal inputs give
// equal bits on every rank. kAverage divides by inputs.size(),
// integers towards zero. Half types are folded in float32 and
// rounded once; complex ones are only summed. `out` may be one of the inputs.
void fold(Dtype dtype, ReduceKind kind, void* out, std::span<const void* const> inputs,
          size_t count);

// How results are written.
enum class Stores : uint8_t {
  kCached,
  // Past the caches: for results too large to still be there when somebody reads them.
  kStreamed
};
// For a result of so many bytes.
Stores storesFor(size_t bytes);
// For an average of so many bytes, which the next call begins with.
Stores storesForAverage(size_t bytes);
// Where the result takes the place of something that the same core has read, `window` bytes ago.
Stores storesInPlace(size_t bytes, size_t window);

// Plain vector loads and stores instead of memcpy: neighbor_allreduce of 4 MiB fell from 0.57 to
// 0.39 ms with it, and only so can the stores be chosen.
void copyBytes(void* to, const void* from, size_t bytes, Stores stores = Stores::kCached);

// out[i] = (weights[0] * inputs[0][i] + weights[1] * inputs[1][i] + ...) / divisor, in that order.
// Floating and complex types only; half types are summed in float32 and rounded once. `out` may be
// one of the inputs. Without any, zeros.
void weightedSum(Dtype dtype, void* out, std::span<const void* const> inputs,
                 std::span<const double> weights, double divisor, size_t count, Stores stores);

}  // namespace bluefog
