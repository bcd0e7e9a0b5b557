#pragma once

#include <sched.h>

#include <chrono>

#include "transport/tuning/Tuning.hpp"

namespace bluefog {

// A Backoff says what a waiting thread does between two looks for work: it spins, then it gives its
// core to any other thread that wants it, and in the end it has to sleep. A thread that has a core
// of its own spins first, but only briefly, because the rank that it waits for may have been put on
// the same core. Where ranks share cores, a thread yields only a few times. The kernel chooses
// fairly among the threads that yield, so a thread that could go on is passed over when it has had
// more time than they (16 ranks on 2 cores take 5 looks for each small message). Thread safety: one
// thread uses it, for one wait.
class Backoff {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Backoff(bool own_core, Time now) : own_core_(own_core), since_(now) {}

  // Begins anew, after something has moved.
  void reset(Time now) {
    since_ = now;
    yields_ = 0;
  }
  // Spins or yields once. Returns false, and does neither, when it is time to sleep.
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
