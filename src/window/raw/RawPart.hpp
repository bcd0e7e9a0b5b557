#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "window/memory/WindowMemory.hpp"
#include "window/raw/RawRoom.hpp"
#include "window/raw/SignalQueue.hpp"

namespace bluefog {

// A RawPart is this rank's part of a raw window: memory that other ranks write to as they like, and
// the signals that they send. A RawPeer stands for another rank's part. It owns its window block,
// and refers to the memory, which must outlive it.
// Thread safety: any thread may call any method.
class RawPart {
 public:
  struct RawSpan {
    std::byte* data;
    size_t bytes;
  };
  // `number` tells the window from others, is the same on all ranks, and is below 2^31. `block` is
  // a zeroed window block of RawRoom::bytesFor(size) bytes.
  RawPart(int rank, int size, uint64_t number, RawSpan memory, std::unique_ptr<WindowBlock> block)
      : rank_(rank),
        size_(size),
        number_(number),
        memory_(memory),
        block_(std::move(block)),
        room_(block_->data()),
        queue_(room_, size) {}

  int rank() const { return rank_; }
  int size() const { return size_; }
  uint64_t number() const { return number_; }
  const RawSpan& memory() const { return memory_; }
  const RawRoom& room() const { return room_; }
  SignalQueue& queue() { return queue_; }

  // Lets other ranks write and signal from now on, or not any more. Calls that are under way then
  // go on; MappedRawPeer::isWriting() tells of them.
  void setOpen(bool is_open) const { room_.setOpen(number_, is_open); }
  // Writes bytes from position `at` on. Returns false, and does nothing, if they exceed the memory.
  bool write(uint64_t at, const std::byte* from, size_t bytes) const;
  // Counts a signal of that rank, and wakes this rank's waits.
  void signal(int from) const { signalTo(room_, from); }
  // Does the same in the room of any rank of this host.
  static void signalTo(const RawRoom& room, int from);

 private:
  const int rank_;
  const int size_;
  const uint64_t number_;
  const RawSpan memory_;
  const std::unique_ptr<WindowBlock> block_;
  const RawRoom room_;
  SignalQueue queue_;
};

}  // namespace bluefog
