#include "device/DeviceHeap.hpp"

#include <iterator>

namespace bluefog {

std::byte* DeviceHeap::take(size_t bytes) {
  std::byte* block = device_->allocate(bytes);
  const std::lock_guard lock(mutex_);
  blocks_.emplace(block, bytes);
  return block;
}

void DeviceHeap::giveBack(std::byte* block, size_t /*bytes*/) {
  {
    const std::lock_guard lock(mutex_);
    blocks_.erase(block);
  }
  device_->release(block);
}

DeviceHeap::Blocks::const_iterator DeviceHeap::blockOf(const std::byte* data) const {
  const auto after = blocks_.upper_bound(data);
  if (after == blocks_.begin()) {
    return blocks_.end();
  }
  const auto block = std::prev(after);
  return data < block->first + block->second ? block : blocks_.end();
}

std::optional<uint64_t> DeviceHeap::placeOf(const std::byte* data, size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto block = blockOf(data);
  if (block == blocks_.end() || data + bytes > block->first + block->second) {
    return std::nullopt;
  }
  return static_cast<uint64_t>(data - block->first);
}

std::optional<bluefog_handle> DeviceHeap::share(const std::byte* data, std::string& why) const {
  const std::lock_guard lock(mutex_);
  const auto block = blockOf(data);
  return block == blocks_.end() ? std::nullopt
                                : device_->share(const_cast<std::byte*>(block->first), why);
}

}  // namespace bluefog
