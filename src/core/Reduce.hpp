#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/Dtype.hpp"

namespace bluefog {

// A ReduceKind is the operation by which a reduction combines the inputs. Its numbers travel in
// frames.
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
  kPremulSum  // each rank's input is multiplied by its own factor: see weightedSum
};

const char* name(ReduceKind kind);

// Writes out[i] = inputs[0][i] op inputs[1][i] op ..., always in that order, so that equal inputs
// give equal bits on every rank. kAverage divides by inputs.size(), and rounds integers toward
// zero. Half types are reduced in float32 and rounded once. Complex types can only be summed. `out`
// may be one of the inputs.
void fold(Dtype dtype, ReduceKind kind, void* out, std::span<const void* const> inputs,
          size_t count);

// Stores says how a kernel writes its result.
enum class Stores : uint8_t {
  kCached,
  // Streaming stores bypass the caches. They suit results that are too large to stay cached until
  // somebody reads them.
  kStreamed
};
// Returns how to write a result of so many bytes.
Stores storesFor(size_t bytes);
// Returns how to write an average of so many bytes, which the next call will read.
Stores storesForAverage(size_t bytes);
// Returns how to write a result over data that the same core read `window` bytes ago.
Stores storesInPlace(size_t bytes, size_t window);

// Copies bytes by plain vector loads and stores. They replaced memcpy because neighbor_allreduce of
// 4 MiB then took 0.39 ms instead of 0.57 ms. Only with them can the caller choose the stores.
void copyBytes(void* to, const void* from, size_t bytes, Stores stores = Stores::kCached);

// Writes out[i] = (weights[0] * inputs[0][i] + weights[1] * inputs[1][i] + ...) / divisor, added in
// that order. It takes floating and complex types only. Half types are summed in float32 and
// rounded once. `out` may be one of the inputs. Without inputs the result is zeros.
void weightedSum(Dtype dtype, void* out, std::span<const void* const> inputs,
                 std::span<const double> weights, double divisor, size_t count, Stores stores);

}  // namespace bluefog
