#pragma once

#include <vector>

#include "transport/memory/Segment.hpp"

namespace bluefog {

// The peers that this rank has made something to do for. They are woken together, after as much
// work as could be done: where ranks share cores, a peer that wakes takes the core at once, and
// would find one frame where there could be many. Used by the driving thread alone.
class Bells {
 public:
  explicit Bells(const Segment& segment)
      : segment_(segment), touched_(static_cast<size_t>(segment.size()), 0) {}

  void touch(int peer) {
    touched_[static_cast<size_t>(peer)] = 1;
    any_ = true;
  }
  void touchPeers(int self) {
    for (char& touched : touched_) {
      touched = 1;
    }
    touched_[static_cast<size_t>(self)] = 0;
    any_ = true;
  }
  void ring() {
    if (!any_) {
      return;
    }
    any_ = false;
    // Orders what was published before the look at who sleeps.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (size_t peer = 0; peer < touched_.size(); ++peer) {
      if (touched_[peer] != 0) {
        touched_[peer] = 0;
        segment_.bell(static_cast<int>(peer)).ring();
      }
    }
  }

 private:
  const Segment& segment_;
  std::vector<char> touched_;
  bool any_ = false;
};

}  // namespace bluefog
