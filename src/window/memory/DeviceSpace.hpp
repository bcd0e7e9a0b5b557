#pragma once

#include <memory>

#include "device/DeviceHeap.hpp"
#include "window/memory/Space.hpp"

namespace bluefog {

// DeviceSpace is the Space of an accelerator's device. It shares ownership of the device's heap.
// Thread safety: any thread may call any method.
class DeviceSpace final : public Space {
 public:
  explicit DeviceSpace(std::shared_ptr<DeviceHeap> heap) : heap_(std::move(heap)) {}

  using Space::combine;
  void combine(Dtype dtype, void* out, std::span<const void* const> inputs,
               std::span<const double> weights, size_t count) override;
  void toHost(std::byte* to, const void* from, size_t bytes) override {
    device().toHost(to, from, bytes);
  }
  void fromHost(void* to, const std::byte* from, size_t bytes) override {
    device().fromHost(to, from, bytes);
  }
  std::shared_ptr<std::byte> make(size_t bytes) override;

 private:
  Device& device() const { return heap_->device(); }

  const std::shared_ptr<DeviceHeap> heap_;
};

}  // namespace bluefog
