#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/memory/Frame.hpp"

namespace bluefog {

// A ring of slots in shared memory with one writer and a fixed number of readers, each of which
// sees every frame. Memory layout: the writer's cursor, one cursor per reader (a cache line each),
// then the slots, each a Frame followed by its payload. Cursors count frames since the beginning.
struct RingShape {
  uint32_t readers;
  uint32_t slots;
  uint32_t payload;  // bytes, a multiple of 64

  size_t stride() const { return sizeof(Frame) + payload; }
  size_t slotsAt() const { return kLine * (1 + static_cast<size_t>(readers)); }
  size_t bytes() const { return slotsAt() + slots * stride(); }

  static constexpr size_t kLine = 64;
};

using Cursor = std::atomic<uint64_t>;

inline Cursor& cursorAt(std::byte* ring, size_t line) {
  return *reinterpret_cast<Cursor*>(ring + line * RingShape::kLine);
}

inline Frame* slotAt(std::byte* ring, const RingShape& shape, uint64_t index) {
  return reinterpret_cast<Frame*>(ring + shape.slotsAt() + (index % shape.slots) * shape.stride());
}

inline std::byte* payloadOf(Frame* frame) {
  return reinterpret_cast<std::byte*>(frame) + sizeof(Frame);
}
inline const std::byte* payloadOf(const Frame* frame) {
  return reinterpret_cast<const std::byte*>(frame) + sizeof(Frame);
}

// The writing end. Used by one thread at a time.
class RingWriter {
 public:
  RingWriter(std::byte* ring, RingShape shape)
      : ring_(ring), shape_(shape), first_reader_(0), end_of_readers_(shape.readers) {}
  // Of a ring that has a place for every reader, but only this one.
  RingWriter(std::byte* ring, RingShape shape, uint32_t reader)
      : ring_(ring), shape_(shape), first_reader_(reader), end_of_readers_(reader + 1) {}

  // For the next frame, or for the one that comes so many after it.
  bool room(uint64_t after = 0) {
    if (next_ + after - freed_ < shape_.slots) {
      return true;
    }
    freed_ = slowest();
    return next_ + after - freed_ < shape_.slots;
  }
  // The slot to fill, when there is room.
  Frame* slot(uint64_t after = 0) { return slotAt(ring_, shape_, next_ + after); }
  uint64_t published() const { return next_; }
  void publish() { cursorAt(ring_, 0).store(++next_, std::memory_order_release); }
  // Whether that reader is what a full ring waits for.
  bool waitsFor(uint32_t reader) const { return next_ - readBy(reader) >= shape_.slots; }
  bool allRead() const { return slowest() == next_; }
  const RingShape& shape() const { return shape_; }

 private:
  // A reader's cursor is the peer's memory: never believe more than was written.
  uint64_t readBy(uint32_t reader) const {
    return std::min(cursorAt(ring_, 1 + reader).load(std::memory_order_acquire), next_);
  }
  uint64_t slowest() const {
    uint64_t least = next_;
    for (uint32_t reader = first_reader_; reader < end_of_readers_; ++reader) {
      least = std::min(least, readBy(reader));
    }
    return least;
  }

  std::byte* ring_;
  RingShape shape_;
  uint32_t first_reader_;
  uint32_t end_of_readers_;
  uint64_t next_ = 0;
  uint64_t freed_ = 0;
};

// One of the reading ends. Used by one thread at a time.
class RingReader {
 public:
  RingReader(std::byte* ring, RingShape shape, uint32_t reader)
      : ring_(ring), shape_(shape), reader_(reader) {}

  // The oldest frame that was not popped, or the one that comes so many after it; or null.
  const Frame* front(uint64_t after = 0) {
    if (next_ + after >= written_) {
      written_ = cursorAt(ring_, 0).load(std::memory_order_acquire);
      if (next_ + after >= written_) {
        return nullptr;
      }
    }
    return slotAt(ring_, shape_, next_ + after);
  }
  uint64_t popped() const { return next_; }
  void pop() { skip(1); }
  // Frees that many frames, also such as are not written yet: this reader does without them.
  void skip(uint64_t frames) {
    next_ += frames;
    cursorAt(ring_, 1 + reader_).store(next_, std::memory_order_release);
  }

 private:
  std::byte* ring_;
  RingShape shape_;
  uint32_t reader_;
  uint64_t next_ = 0;
  uint64_t written_ = 0;
};

}  // namespace bluefog
