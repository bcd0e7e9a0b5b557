#pragma once

#include <cstdint>

namespace bluefog {

// A SlotState says which of a slot's buffers holds what. It is one word in shared memory that the
// slot's writer and its owner both change by compare-and-exchange. So neither waits for the other,
// and neither sees what the other has not finished.
//
// The writer fills a buffer that nobody looks at, and then makes it the one that counts. The owner
// says which buffer it reads. So the writer needs three buffers: one that counts, one that the
// owner reads, and one to fill. The owner's own puts into the slot have two buffers of their own.
struct SlotState {
  static constexpr unsigned kWriters = 3;
  static constexpr unsigned kBuffers = 5;

  unsigned current = 0;  // the buffer that counts
  unsigned held = 0;     // the buffer that the owner reads, or has read last
  bool is_empty = true;  // if set, zeros count instead of the current buffer
  // This counts how often the owner has filled a buffer. It keeps a state from coming up a second
  // time while somebody works with the first one.
  uint32_t filled = 0;
  uint32_t version = 0;  // changes since the owner's last update

  // The word 0 is the state of a new slot.
  static SlotState decode(uint64_t word) {
    return {static_cast<unsigned>(word & 7), static_cast<unsigned>(word >> 3 & 7),
            (word >> 6 & 1) == 0, static_cast<uint32_t>(word >> 7 & kFilledMask),
            static_cast<uint32_t>(word >> 32)};
  }
  uint64_t encode() const {
    return current | held << 3 | static_cast<uint64_t>(!is_empty) << 6 |
           static_cast<uint64_t>(filled & kFilledMask) << 7 | static_cast<uint64_t>(version) << 32;
  }

  // Returns a buffer of the writer's that does not count and that nobody reads.
  unsigned writable() const {
    unsigned buffer = 0;
    while (buffer == current || buffer == held) {
      ++buffer;
    }
    return buffer;
  }
  // Returns a buffer of the owner's that does not count.
  unsigned fillable() const { return current == kWriters ? kWriters + 1 : kWriters; }

  // Returns whether an accumulation onto the other state's content would give the same result as
  // onto this one's.
  bool hasContentOf(const SlotState& other) const {
    return current == other.current && is_empty == other.is_empty && filled == other.filled;
  }

 private:
  static constexpr uint32_t kFilledMask = (1U << 25) - 1;
};

}  // namespace bluefog
