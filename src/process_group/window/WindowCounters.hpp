#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace bluefog {

// WindowCounters counts what this rank sends to the slots of others. Operations that are under way
// may keep it longer than the window lives.
// Thread safety: any thread may call any method.
class WindowCounters {
 public:
  // Sent counts what this rank has written to another rank, and what it has dropped because that
  // rank was dead.
  struct Sent {
    uint64_t puts = 0;  // puts and accumulations
    uint64_t bytes = 0;
    uint64_t dropped = 0;
  };

  void notePut(int rank, size_t bytes) {
    const std::lock_guard lock(mutex_);
    Sent& sent = of_[rank];
    ++sent.puts;
    sent.bytes += bytes;
  }
  void noteDropped(int rank) {
    const std::lock_guard lock(mutex_);
    ++of_[rank].dropped;
  }
  std::map<int, Sent> all() const {
    const std::lock_guard lock(mutex_);
    return of_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<int, Sent> of_;
};

}  // namespace bluefog
