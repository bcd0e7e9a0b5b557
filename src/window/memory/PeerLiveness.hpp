#pragma once

#include <atomic>
#include <chrono>
#include <vector>

#include "core/Process.hpp"

namespace bluefog {

// PeerLiveness says which ranks of a group have ended. It notices the death of a rank of this host
// within some milliseconds.
// Thread safety: any thread may call any method.
class PeerLiveness {
 public:
  // `processes` holds each rank's process, and none for this rank and for ranks on other hosts.
  explicit PeerLiveness(std::vector<Process> processes)
      : processes_(std::move(processes)), ended_(processes_.size()), left_(processes_.size()) {}

  // Returns whether that rank has died or has left the group.
  bool hasEnded(int rank) const;
  // Registers the word in which a rank of this host says that it has left. It must outlive this
  // object.
  void watch(int rank, const std::atomic<uint32_t>& has_left) {
    left_[static_cast<size_t>(rank)] = &has_left;
  }
  // Notes that a rank has ended that cannot be watched, such as one on another host.
  void note(int ended) { ended_[static_cast<size_t>(ended)] = true; }

 private:
  void look() const;

  const std::vector<Process> processes_;
  mutable std::vector<std::atomic<bool>> ended_;
  std::vector<std::atomic<const std::atomic<uint32_t>*>> left_;
  mutable std::atomic<std::chrono::steady_clock::rep> looked_{0};
};

}  // namespace bluefog
