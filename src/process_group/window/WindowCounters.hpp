#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace bluefog {

// Counts what goes into the others' slots. May outlive the window, by what is under way.
class WindowCounters {
 public:
  // What this rank has written to another, and what it has not since that was dead.
  struct Sent {
    uint64_t puts = 0;  // and accumulations
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
