#pragma once

#include <functional>

namespace bluefog {

// An AtFork runs three actions whenever this process forks: one before the fork, one after it in
// the parent, and one after it in the child. The child has only the thread that forked. The actions
// run from construction to destruction, both of which wait until a fork in progress has ended. An
// action must not construct or destroy an AtFork.
// Thread safety: any thread. The actions run in the thread that forks.
class AtFork {
 public:
  using Action = std::function<void()>;

  AtFork(Action before, Action in_parent, Action in_child);
  ~AtFork();
  AtFork(const AtFork&) = delete;
  AtFork& operator=(const AtFork&) = delete;

 private:
  friend struct Forks;

  const Action before_;
  const Action in_parent_;
  const Action in_child_;
};

}  // namespace bluefog
