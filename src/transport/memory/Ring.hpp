#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/memory/Frame.hpp"

namespace bluefog {

// A RingShape describes a ring of slots in shared memory, with one writer and a fixed number of
// readers, each of which sees every frame. The memory holds the writer's cursor, one cursor for
// each reader (each in a cache line of its own), and then the slots. A slot is a Frame followed by
// its payload. Cursors count the frames since the beginning.
struct RingShape {
  uint32_t readers;
  uint32_t slots;
  uint32_t payload;  // bytes per slot, a multiple of 64

  size_t stride() const { return sizeof(Frame) + payload; }
  size_t slotsAt() const { return kLine * (1 + static_cast<size_t>(readers)); }
  size_t bytes() const { return slotsAt() + slots * stride(); }

  static constexpr size_t kLine = 64;
};

// A Cursor is the number of frames that one end of a ring has written or read so far.
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

// A RingWriter is the writing end of a ring. It does not own the memory, which must outlive it.
// Thread safety: one thread at a time.
class RingWriter {
 public:
  // Writes for all readers.
  RingWriter(std::byte* ring, RingShape shape)
      : ring_(ring), shape_(shape), first_reader_(0), end_of_readers_(shape.readers) {}
  // Writes for this reader alone, in a ring that has a cursor for each of several readers. The
  // other cursors are ignored.
  RingWriter(std::byte* ring, RingShape shape, uint32_t reader)
      : ring_(ring), shape_(shape), first_reader_(reader), end_of_readers_(reader + 1) {}

  // Returns whether there is a free slot for the next frame, or for the one that comes `after`
  // frames later.
  bool room(uint64_t after = 0) {
    if (next_ + after - freed_ < shape_.slots) {
      return true;
    }
    freed_ = slowest();
    return next_ + after - freed_ < shape_.slots;
  }
  // Returns the slot of that frame, for the caller to fill. There must be room().
  Frame* slot(uint64_t after = 0) { return slotAt(ring_, shape_, next_ + after); }
  uint64_t published() const { return next_; }
  // Makes the next frame visible to the readers.
  void publish() { cursorAt(ring_, 0).store(++next_, std::memory_order_release); }
  // Returns whether the ring is full because this reader has not read its oldest frame yet.
  bool waitsFor(uint32_t reader) const { return next_ - readBy(reader) >= shape_.slots; }
  bool allRead() const { return slowest() == next_; }
  const RingShape& shape() const { return shape_; }

 private:
  // A reader's cursor lies in memory that the peer writes. So the count is never believed to be
  // more than what was written.
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

// A RingReader is the end of one of a ring's readers. It does not own the memory, which must
// outlive it.
// Thread safety: one thread at a time.
class RingReader {
 public:
  RingReader(std::byte* ring, RingShape shape, uint32_t reader)
      : ring_(ring), shape_(shape), reader_(reader) {}

  // Returns the oldest frame that was not popped yet, or the one that comes `after` frames later.
  // Returns null if it is not written yet.
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
  // Frees that many frames for the writer. They may include frames that are not written yet, which
  // this reader will then never see.
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
