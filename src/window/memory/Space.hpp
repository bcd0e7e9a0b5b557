#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>

#include "core/Dtype.hpp"

namespace bluefog {

// Where elements of a window lie, and how they are worked on there. What a call does is done when
// it returns. Any thread may use it.
class Space {
 public:
  virtual ~Space() = default;

  // As window/Combine.hpp's; all of it lies there.
  virtual void combine(Dtype dtype, void* out, std::span<const void* const> inputs,
                       std::span<const double> weights, size_t count) = 0;
  void combine(Dtype dtype, void* out, std::initializer_list<const void*> inputs,
               std::initializer_list<double> weights, size_t count) {
    combine(dtype, out, std::span(inputs.begin(), inputs.size()),
            std::span(weights.begin(), weights.size()), count);
  }
  virtual void toHost(std::byte* to, const void* from, size_t bytes) = 0;
  virtual void fromHost(void* to, const std::byte* from, size_t bytes) = 0;
  // Uninitialised memory there.
  virtual std::shared_ptr<std::byte> make(size_t bytes) = 0;
};

}  // namespace bluefog
