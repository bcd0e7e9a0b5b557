#pragma once

#include <atomic>
#include <chrono>
#include <vector>

#include "core/Fd.hpp"

namespace bluefog {

// Whether the processes of a group's ranks live. Of those of this host it is some milliseconds old
// at most. Any thread may ask.
class Lives {
 public:
  // `processes`: pidfds, by rank; invalid for this one and for those on other hosts.
  explicit Lives(std::vector<Fd> processes)
      : processes_(std::move(processes)), ended_(processes_.size()) {}

  bool hasEnded(int rank) const;
  // Of one on another host.
  void note(int ended) { ended_[static_cast<size_t>(ended)] = true; }

 private:
  void look() const;

  const std::vector<Fd> processes_;
  mutable std::vector<std::atomic<bool>> ended_;
  mutable std::atomic<std::chrono::steady_clock::rep> looked_{0};
};

}  // namespace bluefog
