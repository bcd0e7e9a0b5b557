#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "transport/memory/Frame.hpp"

namespace bluefog {

// A BlockedState says which ranks one rank waits for in its only call that is made of messages,
// while that rank's caller sleeps and nothing else of its group is under way. A peer reads it while
// its own collective lacks that rank: if that rank lacks the peer in turn, neither can ever
// continue.
// It lies in shared memory, one for each rank, and the values are guarded by a sequence lock.
// Thread safety: one thread of its rank at a time writes; any thread of any process may read.
class alignas(64) BlockedState {
 public:
  // Wait is the published value: what was called, the call's sequence number on the waiting rank,
  // and the ranks that it lacks.
  struct Wait {
    Signature called;
    uint64_t sequence = 0;
    RankSet lacking;
  };

  void set(const Wait& wait) { write(wait, kSet); }
  void clear() {
    if ((version_.load(std::memory_order_relaxed) & kSet) != 0) {
      write({}, 0);
    }
  }
  // Returns the published wait, or nothing if none is set or a write is going on.
  std::optional<Wait> read() const {
    const uint64_t before = version_.load(std::memory_order_acquire);
    if ((before & kWriting) != 0 || (before & kSet) == 0) {
      return std::nullopt;
    }
    Words words;
    for (size_t i = 0; i < words.size(); ++i) {
      words[i] = words_[i].load(std::memory_order_acquire);
    }
    if (version_.load(std::memory_order_relaxed) != before) {
      return std::nullopt;
    }
    return std::bit_cast<Wait>(words);
  }

 private:
  using Words = std::array<uint64_t, sizeof(Wait) / sizeof(uint64_t)>;
  static constexpr uint64_t kWriting = 1;
  static constexpr uint64_t kSet = 2;
  static constexpr uint64_t kNext = 4;

  void write(const Wait& wait, uint64_t set) {
    const uint64_t next = (version_.load(std::memory_order_relaxed) & ~(kNext - 1)) + kNext;
    version_.store(next | kWriting, std::memory_order_relaxed);
    const Words words = std::bit_cast<Words>(wait);
    for (size_t i = 0; i < words.size(); ++i) {
      words_[i].store(words[i], std::memory_order_release);
    }
    version_.store(next | set, std::memory_order_release);
  }

  std::atomic<uint64_t> version_{0};
  std::array<std::atomic<uint64_t>, sizeof(Wait) / sizeof(uint64_t)> words_{};
};

}  // namespace bluefog
