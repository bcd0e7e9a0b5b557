#pragma once

#include <atomic>
#include <chrono>
#include <vector>

#include "core/Process.hpp"

namespace bluefog {

// Whether the ranks of a group are there. Of the death of those of this host it is some
// milliseconds old at most. Any thread may ask.
class PeerLiveness {
 public:
  // `processes`, by rank: none for this one and for those on other hosts.
  explicit PeerLiveness(std::vector<Process> processes)
      : processes_(std::move(processes)), ended_(processes_.size()), left_(processes_.size()) {}

  bool hasEnded(int rank) const;
  // Where a rank of this host says that it leaves.
  void watch(int rank, const std::atomic<uint32_t>& has_left) {
    left_[static_cast<size_t>(rank)] = &has_left;
  }
  // Of one on another host.
  void note(int ended) { ended_[static_cast<size_t>(ended)] = true; }

 private:
  void look() const;

  const std::vector<Process> processes_;
  mutable std::vector<std::atomic<bool>> ended_;
  std::vector<std::atomic<const std::atomic<uint32_t>*>> left_;
  mutable std::atomic<std::chrono::steady_clock::rep> looked_{0};
};

}  // namespace bluefog
