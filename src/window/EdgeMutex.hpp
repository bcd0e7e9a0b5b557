#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "core/Futex.hpp"

namespace bluefog {

// An EdgeMutex excludes the writer of a slot and the slot's owner from each other, for as long as
// their programs like. It lies in memory that ranks share, zeroed memory being a free mutex. A rank
// holds it, not a thread, so that others can take it from a rank that died.
// Thread safety: any thread of any process may call any method.
class alignas(64) EdgeMutex {
 public:
  // Returns the rank that holds it, or nothing if it was free and `rank` holds it now.
  std::optional<int> take(int rank) {
    uint32_t word = kFree;
    return word_.compare_exchange_strong(word, held(rank), std::memory_order_acquire)
               ? std::nullopt
               : std::optional(holderOf(word));
  }
  // Takes it from a rank that is dead. Returns false if that rank does not hold it any more.
  bool takeFrom(int dead, int rank) {
    uint32_t word = held(dead);
    return word_.compare_exchange_strong(word, held(rank) | kWaited, std::memory_order_acquire) ||
           (word == (held(dead) | kWaited) &&
            word_.compare_exchange_strong(word, held(rank) | kWaited, std::memory_order_acquire));
  }
  // Sleeps until that holder lets go, or until the limit has passed. It may also return early.
  void await(int holder, std::chrono::nanoseconds limit) {
    uint32_t word = held(holder);
    if (word_.compare_exchange_strong(word, word | kWaited, std::memory_order_relaxed) ||
        word == (held(holder) | kWaited)) {
      futexWait(word_, held(holder) | kWaited, limit);
    }
  }
  // Frees it, which only the rank that holds it may do.
  void letGo() {
    if ((word_.exchange(kFree, std::memory_order_release) & kWaited) != 0) {
      futexWakeAll(word_);
    }
  }
  std::optional<int> holder() const {
    const uint32_t word = word_.load(std::memory_order_relaxed);
    return word == kFree ? std::nullopt : std::optional(holderOf(word));
  }

 private:
  static constexpr uint32_t kFree = 0;
  static constexpr uint32_t kWaited = 1U << 31;

  static uint32_t held(int rank) { return static_cast<uint32_t>(rank) + 1; }
  static int holderOf(uint32_t word) { return static_cast<int>(word & ~kWaited) - 1; }

  std::atomic<uint32_t> word_;
};

}  // namespace bluefog
