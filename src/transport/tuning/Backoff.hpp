#pragma once

#include <sched.h>

#include <chrono>

#include "transport/tuning/Tuning.hpp"

namespace bluefog {

// What a waiting thread does between two looks before it sleeps: it gives its core to whoever else
// wants it, and looks again. Where each rank can have a core of its own it looks again at once, for
// a while; but the one that it waits for may have been put on this same core. Where ranks share
// cores it does so a few times only: the kernel goes on choosing among those that wait, so as to be
// fair, while one that could go on has had more time than they (16 ranks on 2 cores: 5 looks for
// each small message).
class Backoff {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Backoff(bool own_core, Time now) : own_core_(own_core), since_(now) {}

  // Something moved.
  void reset(Time now) {
    since_ = now;
    yields_ = 0;
  }
  // Passes a moment. False when it is time to sleep.
  bool pause(Time now) {
    if (own_core_ && now < since_ + tuning::kSpinTime) {
      relax();
      return true;
    }
    if (now < since_ + tuning::kYieldTime &&
        (own_core_ || yields_ < tuning::kMostYieldsOnSharedCore)) {
      ++yields_;
      ::sched_yield();
      return true;
    }
    return false;
  }

 private:
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
