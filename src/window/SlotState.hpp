#pragma once

#include <cstdint>

namespace bluefog {

// Which of a slot's buffers holds what, in one word that the slot's writer and its owner both
// change: so neither waits for the other, and neither sees what the other has not finished.
//
// The writer fills a buffer that nobody looks at and then makes it the one that counts. The owner,
// who reads, says which one it holds: the writer has one more. What the owner puts there itself has
// two buffers of its own.
struct SlotState {
  static constexpr unsigned kWriters = 3;
  static constexpr unsigned kBuffers = 5;

  unsigned current = 0;  // the buffer that counts
  unsigned held = 0;     // the one that the owner reads, or has read last
  bool is_empty = true;  // zeros count instead
  // How often the owner has filled a buffer: with it, no state comes twice while somebody works on
  // what the first one said.
  uint32_t filled = 0;
  uint32_t version = 0;  // changes since the owner's last update

  // 0 is that of a new slot.
  static SlotState decode(uint64_t word) {
    return {static_cast<unsigned>(word & 7), static_cast<unsigned>(word >> 3 & 7),
            (word >> 6 & 1) == 0, static_cast<uint32_t>(word >> 7 & kFilledMask),
            static_cast<uint32_t>(word >> 32)};
  }
  uint64_t encode() const {
    return current | held << 3 | static_cast<uint64_t>(!is_empty) << 6 |
           static_cast<uint64_t>(filled & kFilledMask) << 7 | static_cast<uint64_t>(version) << 32;
  }

  // A buffer of the writer's that nobody reads.
  unsigned writable() const {
    unsigned buffer = 0;
    while (buffer == current || buffer == held) {
      ++buffer;
    }
    return buffer;
  }
  // A buffer of the owner's that does not count.
  unsigned fillable() const { return current == kWriters ? kWriters + 1 : kWriters; }

  // Whether an accumulation onto what the other one says would give the same.
  bool hasContentOf(const SlotState& other) const {
    return current == other.current && is_empty == other.is_empty && filled == other.filled;
  }

 private:
  static constexpr uint32_t kFilledMask = (1U << 25) - 1;
};

}  // namespace bluefog
