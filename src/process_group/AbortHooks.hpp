#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

namespace bluefog {

// AbortHooks are functions that a program wants called before a group is aborted, for example to
// write down what was under way. Each has a number by which it is removed.
// Thread safety: any thread may call any method. A hook may add and remove hooks.
class AbortHooks {
 public:
  using Hook = std::function<void()>;

  // Adds a hook, in place of one that has the same number.
  void add(int64_t number, Hook hook);
  // Removes the hook of that number. Throws ValueError if there is none.
  void remove(int64_t number);
  // Calls the hooks, in the order of their numbers. An exception of a hook becomes a warning.
  void call() const;

 private:
  mutable std::mutex mutex_;
  std::map<int64_t, Hook> hooks_;
};

}  // namespace bluefog
