#include "window/Combine.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/Reduce.hpp"

namespace bluefog {
namespace {

bool isOne(double weight) {
  return weight == 1;
}

template <class T>
void combineIntegers(T* out, std::span<const void* const> inputs, std::span<const double> weights,
                     size_t count) {
  for (size_t i = 0; i < count; ++i) {
    double sum = 0;
    for (size_t k = 0; k < inputs.size(); ++k) {
      sum += weights[k] * static_cast<double>(static_cast<const T*>(inputs[k])[i]);
    }
    out[i] = static_cast<T>(sum);
  }
}

void combineIntegers(Dtype dtype, void* out, std::span<const void* const> inputs,
                     std::span<const double> weights, size_t count) {
  switch (dtype) {
    case Dtype::kUInt8:
      return combineIntegers(static_cast<uint8_t*>(out), inputs, weights, count);
    case Dtype::kInt8:
      return combineIntegers(static_cast<int8_t*>(out), inputs, weights, count);
    case Dtype::kInt16:
      return combineIntegers(static_cast<int16_t*>(out), inputs, weights, count);
    case Dtype::kInt32:
      return combineIntegers(static_cast<int32_t*>(out), inputs, weights, count);
    default:
      return combineIntegers(static_cast<int64_t*>(out), inputs, weights, count);
  }
}

}  // namespace

bool isCombinable(Dtype dtype) {
  return isFloating(partOf(dtype)) || dtype == Dtype::kUInt8 || dtype == Dtype::kInt8 ||
         dtype == Dtype::kInt16 || dtype == Dtype::kInt32 || dtype == Dtype::kInt64;
}

void combine(Dtype dtype, void* out, std::span<const void* const> inputs,
             std::span<const double> weights, size_t count) {
  const size_t bytes = count * width(dtype);
  // Measured with 4 MiB that others will read: memcpy took 66 us and copyBytes 76. A sum written
  // past the caches took twice as long.
  const bool in_place = std::count(inputs.begin(), inputs.end(), out) > 0;
  const Stores stores = in_place ? Stores::kCached : storesForAverage(bytes);
  if (inputs.size() == 1 && isOne(weights.front())) {
    std::memmove(out, inputs.front(), bytes);
  } else if (inputs.empty() || isFloating(partOf(dtype))) {
    weightedSum(dtype, out, inputs, weights, 1, count, stores);
  } else if (std::all_of(weights.begin(), weights.end(), isOne)) {
    fold(dtype, ReduceKind::kSum, out, inputs, count);
  } else {
    combineIntegers(dtype, out, inputs, weights, count);
  }
}

}  // namespace bluefog
