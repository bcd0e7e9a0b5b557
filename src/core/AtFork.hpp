#pragma once

#include <functional>

namespace bluefog {

// What is to be done when this process forks: before, and after it in the parent and in the child,
// which has no other thread. From construction to destruction, which wait for the end of a fork.
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
