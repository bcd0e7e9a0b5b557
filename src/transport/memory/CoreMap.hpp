#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace bluefog {

// On which core each rank of the group was seen last. In shared memory, zeroed.
class CoreMap {
 public:
  static constexpr int kNone = -1;
  static size_t bytes(int ranks) {
    return sizeof(CoreMap) + sizeof(std::atomic<int32_t>) * static_cast<size_t>(ranks);
  }

  int of(int rank) const { return taken_[rank].load(std::memory_order_relaxed) - 1; }
  void take(int rank, int core) { taken_[rank].store(core + 1, std::memory_order_relaxed); }

  // Whether a rank may move now: one at a time, and each is seen before the next.
  bool mayMove(std::chrono::steady_clock::time_point now) {
    const int64_t time = std::chrono::nanoseconds(now.time_since_epoch()).count();
    int64_t last = last_move_.load(std::memory_order_relaxed);
    return time > last + kBetweenMoves &&
           last_move_.compare_exchange_strong(last, time, std::memory_order_relaxed);
  }

 private:
  static constexpr int64_t kBetweenMoves = 100'000;  // nanoseconds

  std::atomic<int64_t> last_move_;
  std::atomic<int32_t> taken_[];  // 0: none
};

}  // namespace bluefog
