#pragma once

#include <chrono>

#include "core/Cores.hpp"
#include "transport/tuning/CoreMap.hpp"

namespace bluefog {

// The core that a rank's waiting thread runs on, where the group's ranks are as many as the cores
// or more. The kernel may leave three of four on one core for tens of milliseconds: the fourth
// sleeps often, but too shortly for the kernel to fetch it company. So the waiting threads look at
// each other's seats, and one moves from the fullest core to the emptiest. The set of cores that it
// may use stays as it was.
class CoreBalancer {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `here`: as many of the group's `size` ranks are on this host.
  CoreBalancer(CoreMap& map, int rank, int size, int here);

  // By the waiting thread, as often as it likes.
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
