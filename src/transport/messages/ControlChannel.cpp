#include "transport/messages/ControlChannel.hpp"

namespace bluefog {
namespace {

ControlMessage& entry(ControlRing& ring, uint64_t index) {
  return ring.entries[index % ControlRing::kEntries];
}

}  // namespace

bool ControlChannel::send() {
  if (queued_.empty()) {
    return false;
  }
  const uint64_t read = out_->read.load(std::memory_order_acquire);
  uint64_t written = out_->written.load(std::memory_order_relaxed);
  bool moved = false;
  while (!queued_.empty() && written - read < ControlRing::kEntries) {
    entry(*out_, written) = queued_.front();
    queued_.pop_front();
    out_->written.store(++written, std::memory_order_release);
    moved = true;
  }
  return moved;
}

bool ControlChannel::isSound() const {
  return in_->written.load(std::memory_order_acquire) - in_->read.load(std::memory_order_relaxed) <=
         ControlRing::kEntries;
}

std::optional<ControlMessage> ControlChannel::take() {
  const uint64_t read = in_->read.load(std::memory_order_relaxed);
  if (read == in_->written.load(std::memory_order_acquire)) {
    return std::nullopt;
  }
  const ControlMessage control = entry(*in_, read);
  in_->read.store(read + 1, std::memory_order_release);
  return control;
}

}  // namespace bluefog
