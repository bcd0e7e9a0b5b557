#include "core/AtFork.hpp"

#include <pthread.h>

#include <memory>
#include <mutex>
#include <set>
#include <utility>

namespace bluefog {

// Forks holds the AtFork objects of this process. The callbacks of pthread_atfork() take no
// argument, so they all share this one.
struct Forks {
  static Forks& instance() {
    // This object is never destroyed, because static destructors run while other threads still use
    // it.
    static Forks* const made = [] {
      ::pthread_atfork([] { instance().begin(); }, [] { instance().end(&AtFork::in_parent_); },
                       [] { instance().end(&AtFork::in_child_); });
      return std::make_unique<Forks>().release();
    }();
    return *made;
  }

  void begin() {
    mutex.lock();
    for (const AtFork* each : all) {
      each->before_();
    }
  }
  void end(const AtFork::Action AtFork::* action) {
    for (const AtFork* each : all) {
      (each->*action)();
    }
    mutex.unlock();
  }

  std::mutex mutex;  // locked during a fork
  std::set<const AtFork*> all;
};

AtFork::AtFork(Action before, Action in_parent, Action in_child)
    : before_(std::move(before)), in_parent_(std::move(in_parent)), in_child_(std::move(in_child)) {
  const std::lock_guard lock(Forks::instance().mutex);
  Forks::instance().all.insert(this);
}

AtFork::~AtFork() {
  const std::lock_guard lock(Forks::instance().mutex);
  Forks::instance().all.erase(this);
}

}  // namespace bluefog
