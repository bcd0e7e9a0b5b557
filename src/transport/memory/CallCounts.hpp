#pragma once

#include <cstdint>
#include <map>

#include "transport/memory/Frame.hpp"

namespace bluefog {

// CallCounts holds, for each Counter, the number of the last call that a rank has made. Calls are
// numbered from 1, so 0 means that there was none.
// Thread safety: one thread at a time.
class CallCounts {
 public:
  uint64_t of(const Counter& counter) const {
    if (counter == Counter()) {
      return unnamed_;
    }
    const auto found = counts_.find(counter);
    return found == counts_.end() ? base_ : found->second;
  }
  void set(const Counter& counter, uint64_t number) {
    if (counter == Counter()) {
      unnamed_ = number;
    } else {
      counts_[counter] = number;
    }
  }
  // Counts one more call and returns its number.
  uint64_t next(const Counter& counter) {
    const uint64_t number = of(counter) + 1;
    set(counter, number);
    return number;
  }
  // Returns the highest number that any counter has reached.
  uint64_t highest() const {
    uint64_t most = unnamed_;
    for (const auto& [counter, number] : counts_) {
      most = number > most ? number : most;
    }
    return most;
  }
  // Returns the number that align() was last given; 0 before.
  uint64_t base() const { return base_; }
  // Sets all counters to `number`, those that have not been used yet included.
  void align(uint64_t number) {
    base_ = unnamed_ = number;
    counts_.clear();
  }

 private:
  uint64_t base_ = 0;
  uint64_t unnamed_ = 0;
  std::map<Counter, uint64_t> counts_;
};

}  // namespace bluefog
