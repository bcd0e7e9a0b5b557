#pragma once

#include "core/Reduce.hpp"
#include "window/Combine.hpp"
#include "window/memory/Space.hpp"

namespace bluefog {

// HostSpace is the Space of the host's memory. There is one in a process, which get() returns.
// Thread safety: any thread may call any method.
class HostSpace final : public Space {
 public:
  static const std::shared_ptr<HostSpace>& get() {
    static const auto space = std::make_shared<HostSpace>();
    return space;
  }

  using Space::combine;
  void combine(Dtype dtype, void* out, std::span<const void* const> inputs,
               std::span<const double> weights, size_t count) override {
    bluefog::combine(dtype, out, inputs, weights, count);
  }
  void toHost(std::byte* to, const void* from, size_t bytes) override {
    copyBytes(to, static_cast<const std::byte*>(from), bytes);
  }
  void fromHost(void* to, const std::byte* from, size_t bytes) override {
    copyBytes(static_cast<std::byte*>(to), from, bytes);
  }
  std::shared_ptr<std::byte> make(size_t bytes) override {
    return {new std::byte[bytes], std::default_delete<std::byte[]>()};
  }
};

}  // namespace bluefog
