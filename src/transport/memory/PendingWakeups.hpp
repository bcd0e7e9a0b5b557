#pragma once

#include <vector>

#include "transport/memory/Segment.hpp"

namespace bluefog {

// PendingWakeups collects the peers that this rank has made something to do for, and wakes them
// together after as much work as possible. Where ranks share cores, a peer that is woken takes the
// core at once, and would find one frame where there could be many. The segment must outlive it.
// Thread safety: only the driving thread uses it.
class PendingWakeups {
 public:
  explicit PendingWakeups(const Segment& segment)
      : segment_(segment), pending_(static_cast<size_t>(segment.size()), 0) {}

  void add(int peer) {
    pending_[static_cast<size_t>(peer)] = 1;
    any_ = true;
  }
  // Adds all ranks but `self`.
  void addPeers(int self) {
    for (char& pending : pending_) {
      pending = 1;
    }
    pending_[static_cast<size_t>(self)] = 0;
    any_ = true;
  }
  // Wakes those that were added since the last call and that sleep.
  void notifyAll() {
    if (!any_) {
      return;
    }
    any_ = false;
    // This orders what was published before the look at who sleeps.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (size_t peer = 0; peer < pending_.size(); ++peer) {
      if (pending_[peer] != 0) {
        pending_[peer] = 0;
        segment_.eventCount(static_cast<int>(peer)).notify();
      }
    }
  }

 private:
  const Segment& segment_;
  std::vector<char> pending_;
  bool any_ = false;
};

}  // namespace bluefog
