#pragma once

#include <sched.h>

#include <chrono>

namespace bluefog {

// What a waiting thread does between two looks before it sleeps. Where each rank can have a core of
// its own it looks again at once, for a while; but the one that it waits for may have been put on
// this same core, and gets it early on.
class Patience {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Patience(bool own_core, Time now) : own_core_(own_core), since_(now) {}

  // Something moved.
  void renew(Time now) {
    since_ = now;
    yields_ = 0;
  }
  // Passes a moment. False when it is time to sleep.
  bool wait(Time now) {
    if (yields_ < kYields && !(own_core_ && now < since_ + kAlone)) {
      ++yields_;
      ::sched_yield();
      return true;
    }
    if (own_core_ && now < since_ + kSpin) {
      relax();
      return true;
    }
    return false;
  }

 private:
  static constexpr std::chrono::microseconds kAlone{5};
  static constexpr std::chrono::microseconds kSpin{50};
  static constexpr int kYields = 8;

  static void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  bool own_core_;
  Time since_;
  int yields_ = 0;
};

}  // namespace bluefog
