#pragma once

#include <chrono>

#include "core/Cores.hpp"
#include "transport/tuning/CoreMap.hpp"

namespace bluefog {

// A CoreBalancer spreads the waiting threads of a host's ranks evenly over the cores, where there
// are at least as many ranks as cores. The kernel may leave three of four on one core for tens of
// milliseconds: the fourth sleeps often, but too shortly for the kernel to move another one to its
// core. So each thread writes its core into the CoreMap, and one of them moves from the fullest
// core to the emptiest. The set of cores that it may use stays as it was. The map must outlive it.
// Thread safety: only the thread that waits may call look().
class CoreBalancer {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `here` of the group's `size` ranks are on this host.
  CoreBalancer(CoreMap& map, int rank, int size, int here);

  // Moves the calling thread to another core if that evens out the ranks. It may be called at any
  // rate, since it does nothing between its intervals.
  void look(Time now) {
    if (crowded_ && now >= next_look_) {
      next_look_ = now + kBetweenLooks;
      takeOrMove(now);
    }
  }

 private:
  static constexpr std::chrono::microseconds kBetweenLooks{20};

  void takeOrMove(Time now);
  int emptierThan(int core, const Cores& usable) const;

  CoreMap& map_;
  const int rank_;
  const int size_;
  bool crowded_;
  Time next_look_{};
};

}  // namespace bluefog
