#pragma once

#include <sched.h>

namespace bluefog {

// The cores that the calling thread may run on.
class Cores {
 public:
  static constexpr int kMost = CPU_SETSIZE;

  static Cores usable() {
    Cores cores;
    if (::sched_getaffinity(0, sizeof cores.set_, &cores.set_) != 0) {
      CPU_ZERO(&cores.set_);
    }
    return cores;
  }
  // Where the calling thread runs. Negative where that is not known.
  static int current() { return ::sched_getcpu(); }

  int count() const { return CPU_COUNT(&set_); }
  bool has(int core) const { return CPU_ISSET(static_cast<size_t>(core), &set_); }
  // Has the calling thread go on at that core, and it may still use all of these. False where the
  // system forbids it.
  bool moveTo(int core) const {
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(static_cast<size_t>(core), &only);
    const bool moved = ::sched_setaffinity(0, sizeof only, &only) == 0;
    return ::sched_setaffinity(0, sizeof set_, &set_) == 0 && moved;
  }

 private:
  cpu_set_t set_;
};

}  // namespace bluefog
