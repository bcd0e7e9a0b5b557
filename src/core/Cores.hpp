#pragma once

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>

namespace bluefog {

// A Cores is a set of processor cores, for example those that the calling thread may run on.
// Thread safety: a plain value. The static functions and moveTo() speak of the calling thread.
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
  // Returns the core that the calling thread runs on, or a negative number where that is unknown.
  static int current() { return ::sched_getcpu(); }
  // Returns the bytes of the second-level cache, in general the largest cache that a core does not
  // share. Returns 0 where that is unknown.
  static size_t cacheBytes() {
    static const long bytes = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
    return static_cast<size_t>(std::max(bytes, 0L));
  }

  int count() const { return CPU_COUNT(&set_); }
  bool has(int core) const { return CPU_ISSET(static_cast<size_t>(core), &set_); }
  // Moves the calling thread to `core`, after which the thread may still use all cores of this set.
  // Returns false where the system forbids it. If somebody else has changed the thread's cores
  // meanwhile, that change stays in force and the result is true.
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
