#pragma once

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>

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
  // Of the largest cache that a core has to itself, in general. 0 where that is not known.
  static size_t cacheBytes() {
    static const long bytes = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
    return static_cast<size_t>(std::max(bytes, 0L));
  }

  int count() const { return CPU_COUNT(&set_); }
  bool has(int core) const { return CPU_ISSET(static_cast<size_t>(core), &set_); }
  // Has the calling thread go on at that core, and it may still use all of these. False where the
  // system forbids it. Nothing, where somebody has changed meanwhile what it may use.
  bool moveTo(int core) const {
    Cores only;
    CPU_ZERO(&only.set_);
    CPU_SET(static_cast<size_t>(core), &only.set_);
    if (usable() != *this) {
      return true;
    }
    if (::sched_setaffinity(0, sizeof only.set_, &only.set_) != 0) {
      return false;
    }
    return usable() != only || ::sched_setaffinity(0, sizeof set_, &set_) == 0;
  }
  bool operator==(const Cores& other) const { return CPU_EQUAL(&set_, &other.set_); }

 private:
  cpu_set_t set_;
};

}  // namespace bluefog
