#pragma once

#include <atomic>
#include <chrono>
#include <vector>

#include "core/Fd.hpp"

namespace bluefog {

// Whether the processes of a host's ranks live. What it says is some milliseconds old at most. Any
// thread may ask.
class Lives {
 public:
  // `processes`: pidfds, by rank; invalid for this one and for those on other hosts.
  explicit Lives(std::vector<Fd> processes)
      : processes_(std::move(processes)), ended_(processes_.size()) {}

  bool hasEnded(int rank) const;

 private:
  void look() const;

  const std::vector<Fd> processes_;
  mutable std::vector<std::atomic<bool>> ended_;
  mutable std::atomic<std::chrono::steady_clock::rep> looked_{0};
};

}  // namespace bluefog
