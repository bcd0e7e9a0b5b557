#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "core/Heap.hpp"
#include "device/Device.hpp"

namespace bluefog {

// A DeviceHeap is memory of a device, in blocks that other processes of the host can open. It lives
// as long as anything in it, and keeps the device alive.
// Thread safety: any thread.
class DeviceHeap final : public Heap {
 public:
  explicit DeviceHeap(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  Device& device() const { return *device_; }
  // Throws std::runtime_error where the device has no space.
  std::byte* take(size_t bytes) override;
  void giveBack(std::byte* block, size_t bytes) override;
  // Returns the distance in bytes from the beginning of the block that holds the data.
  std::optional<uint64_t> placeOf(const std::byte* data, size_t bytes) const override;
  void copy(std::byte* to, const std::byte* from, size_t bytes) override {
    device_->copy(to, from, bytes);
  }
  // Returns the handle of the block that holds the data. Where other processes cannot open it, it
  // returns nothing and sets `why`.
  std::optional<bluefog_handle> share(const std::byte* data, std::string& why) const;

 private:
  using Blocks = std::map<const std::byte*, size_t>;

  Blocks::const_iterator blockOf(const std::byte* data) const;

  const std::shared_ptr<Device> device_;
  mutable std::mutex mutex_;
  Blocks blocks_;  // the size of each block in bytes
};

}  // namespace bluefog
