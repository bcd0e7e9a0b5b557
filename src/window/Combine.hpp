#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>

#include "core/Dtype.hpp"

namespace bluefog {

// Computes out[i] = weights[0] * inputs[0][i] + weights[1] * inputs[1][i] + ..., in that order.
// Integers are exact if all weights are 1; otherwise they are summed in float64 and rounded towards
// zero. `out` may be one of the inputs. Without inputs the result is zeros.
void combine(Dtype dtype, void* out, std::span<const void* const> inputs,
             std::span<const double> weights, size_t count);
inline void combine(Dtype dtype, void* out, std::initializer_list<const void*> inputs,
                    std::initializer_list<double> weights, size_t count) {
  combine(dtype, out, std::span(inputs.begin(), inputs.size()),
          std::span(weights.begin(), weights.size()), count);
}

// Returns whether elements of that type can be combined.
bool isCombinable(Dtype dtype);

}  // namespace bluefog
