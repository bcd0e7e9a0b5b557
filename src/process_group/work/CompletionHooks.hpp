#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

namespace bluefog {

// CompletionHooks are what a group calls when one of its operations has succeeded. Torch's flight
// recorder, for one, adds a hook in order to tell operations that have ended from those that hang.
// Thread safety: any thread may call any method.
class CompletionHooks {
 public:
  // A Hook gets the key of the operation's Work, and how many milliseconds the operation took. It
  // must neither wait nor call into the group.
  using Hook = std::function<void(uint64_t key, float milliseconds)>;

  // Adds the hook, in place of one that has the same number.
  void add(int64_t id, Hook hook);
  // Removes the hook. A call of it that is under way on another thread may end later.
  void remove(int64_t id);
  // Calls the hooks in the order of their numbers. It holds no lock meanwhile, because a hook may
  // wait for a lock that is held while another thread removes the hook.
  void call(uint64_t key, float milliseconds) const;
  bool any() const { return any_.load(std::memory_order_acquire); }

 private:
  using Hooks = std::map<int64_t, Hook>;

  // Replaces the hooks by what `change` makes of a copy of them.
  void change(const std::function<void(Hooks&)>& change);

  mutable std::mutex mutex_;
  std::shared_ptr<const Hooks> hooks_ = std::make_shared<const Hooks>();
  std::atomic<bool> any_{false};
};

}  // namespace bluefog
