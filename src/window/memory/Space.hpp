#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>

#include "core/Dtype.hpp"

namespace bluefog {

// A Space is a kind of memory in which elements of a window lie, together with the operations on
// them: the host's memory, or a device's. A call has done its work when it returns.
// Thread safety: any thread may call any method.
class Space {
 public:
  virtual ~Space() = default;

  // Combines as the function in window/Combine.hpp does. All inputs and the output lie in this
  // Space.
  virtual void combine(Dtype dtype, void* out, std::span<const void* const> inputs,
                       std::span<const double> weights, size_t count) = 0;
  void combine(Dtype dtype, void* out, std::initializer_list<const void*> inputs,
               std::initializer_list<double> weights, size_t count) {
    combine(dtype, out, std::span(inputs.begin(), inputs.size()),
            std::span(weights.begin(), weights.size()), count);
  }
  virtual void toHost(std::byte* to, const void* from, size_t bytes) = 0;
  virtual void fromHost(void* to, const std::byte* from, size_t bytes) = 0;
  // Returns uninitialized memory in this Space. Throws if there is none.
  virtual std::shared_ptr<std::byte> make(size_t bytes) = 0;
};

}  // namespace bluefog
