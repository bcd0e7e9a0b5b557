#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace bluefog {

// A CoreMap says on which core each rank of the group was last seen; CoreBalancer reads and writes
// it. It lies in shared memory, which must be zeroed before the first use.
// Thread safety: any thread of any process may call any method.
class CoreMap {
 public:
  static constexpr int kNone = -1;
  static size_t bytes(int ranks) {
    return sizeof(CoreMap) + sizeof(std::atomic<int32_t>) * static_cast<size_t>(ranks);
  }

  // Returns the rank's core, or kNone if the rank has taken none yet.
  int of(int rank) const { return taken_[rank].load(std::memory_order_relaxed) - 1; }
  void take(int rank, int core) { taken_[rank].store(core + 1, std::memory_order_relaxed); }

  // Returns whether a rank may move to another core now. Only one rank may do so within
  // kBetweenMoves, so that the others see each move before they decide on their own.
  bool mayMove(std::chrono::steady_clock::time_point now) {
    const int64_t time = std::chrono::nanoseconds(now.time_since_epoch()).count();
    int64_t last = last_move_.load(std::memory_order_relaxed);
    return time > last + kBetweenMoves &&
           last_move_.compare_exchange_strong(last, time, std::memory_order_relaxed);
  }

 private:
  static constexpr int64_t kBetweenMoves = 100'000;  // nanoseconds

  std::atomic<int64_t> last_move_;
  std::atomic<int32_t> taken_[];  // core + 1; 0 if the rank has taken none
};

}  // namespace bluefog
