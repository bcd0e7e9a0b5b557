#include "window/raw/RawPart.hpp"

#include <atomic>
#include <cstring>

namespace bluefog {

bool RawPart::write(uint64_t at, const std::byte* from, size_t bytes) const {
  if (at > memory_.bytes || bytes > memory_.bytes - at) {
    return false;
  }
  std::memmove(memory_.data + at, from, bytes);
  return true;
}

void RawPart::signalTo(const RawRoom& room, int from) {
  room.signals(from).fetch_add(1, std::memory_order_release);
  // This orders the signal before the look whether the owner sleeps.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  room.news().notify();
}

}  // namespace bluefog
