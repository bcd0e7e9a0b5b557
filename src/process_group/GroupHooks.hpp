#pragma once

#include <c10/util/Exception.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "process_group/Features.hpp"
#include "process_group/Registry.hpp"

namespace bluefog {

// A HookTable has functions that a program wants called, each with a number by which it is removed.
// Thread safety: any thread may call any method, and a hook may add and remove hooks. A call of a
// hook that is under way on another thread may end after its removal.
template <class... Arguments>
class HookTable {
 public:
  using Hook = std::function<void(Arguments...)>;

  // Adds the hook, in place of one that has the same number.
  void add(int64_t number, Hook hook) {
    const auto added = std::make_shared<const Hook>(std::move(hook));
    change([&](Hooks& hooks) { hooks[number] = added; });
  }
  // Removes the hook. Throws ValueError if there is none of that number.
  void remove(int64_t number) {
    size_t removed = 0;
    change([&](Hooks& hooks) { removed = hooks.erase(number); });
    TORCH_CHECK_VALUE(removed != 0, "[bluefog] there is no hook ", number);
  }
  bool any() const { return any_.load(std::memory_order_acquire); }
  // Calls the hooks in the order of their numbers. An exception of a hook becomes a warning.
  void call(Arguments... arguments) const {
    // A hook that removes hooks must not end this table while it is read.
    const std::shared_ptr<const Hooks> hooks = now();
    for (const auto& [number, hook] : *hooks) {
      try {
        (*hook)(arguments...);
      } catch (const std::exception& error) {
        TORCH_WARN("[bluefog] hook ", number, " has failed: ", error.what());
      }
    }
  }

 private:
  using Hooks = std::map<int64_t, std::shared_ptr<const Hook>>;

  std::shared_ptr<const Hooks> now() const {
    const std::lock_guard lock(mutex_);
    return hooks_;
  }
  // Replaces the table by what `change` makes of a copy of it. No hook is copied or destroyed under
  // the lock, because a function of Python needs the GIL for that, and the holder of the GIL may
  // want the lock.
  template <class Change>
  void change(const Change& change) {
    std::shared_ptr<const Hooks> before;  // destroyed when the lock is free
    const std::lock_guard lock(mutex_);
    auto changed = std::make_shared<Hooks>(*hooks_);
    change(*changed);
    any_.store(!changed->empty(), std::memory_order_release);
    before = std::exchange(hooks_, std::move(changed));
  }

  mutable std::mutex mutex_;
  std::shared_ptr<const Hooks> hooks_ = std::make_shared<const Hooks>();
  std::atomic<bool> any_{false};
};

// GroupHooks are called at certain events of a group. Groups and Works share them.
// Thread safety: as for HookTable.
struct GroupHooks {
  std::atomic<uint64_t> groups = 0;  // how many groups have had these hooks
  // These are called once for a group: before abort() ends what is pending, or, in a thread of
  // their own, when the first collective has failed on this rank.
  HookTable<> abort;
  // These are called when an operation has succeeded, with the key of its Work and the milliseconds
  // that it took. A hook must neither wait nor call into the group. Torch's flight recorder uses
  // them to tell ended operations from hung ones.
  HookTable<uint64_t, float> completion;
#ifdef BLUEFOG_C10D_HAS_COMPLETION_HOOKS
  void addCompletion(int64_t number, c10d::CompletionHook hook) {
    completion.add(number, [hook = std::move(hook)](uint64_t key, float milliseconds) {
      hook({key, milliseconds});
    });
  }
#endif
};

// A GroupEvents calls the hooks for one group. The groups of several epochs share their hooks.
// Thread safety: any thread may call any method.
class GroupEvents {
 public:
  explicit GroupEvents(std::shared_ptr<GroupHooks> hooks)
      : hooks_(std::move(hooks)), number_(hooks_->groups++) {}

  GroupHooks& hooks() const { return *hooks_; }
  // Returns the key of the group's Work that has this number there. No Work of another group with
  // the same hooks has that key.
  uint64_t keyOf(uint64_t work) const { return number_ << kBitsOfWork | work; }
  // Calls the abort hooks, unless that was done before or the group was left in order.
  void noteAbort() {
    if (!is_over_.test_and_set()) {
      hooks_->abort.call();
    }
  }
  // Has them called in a thread of their own, because a call that fails must raise at once.
  void noteFailure() {
    if (!is_over_.test_and_set() && hooks_->abort.any()) {
      registry::runApart([hooks = hooks_] { hooks->abort.call(); });
    }
  }
  // Notes that this rank leaves in order, which lets what is pending fail.
  void noteLeaving() { is_over_.test_and_set(); }

 private:
  static constexpr int kBitsOfWork = 44;

  const std::shared_ptr<GroupHooks> hooks_;
  const uint64_t number_;
  std::atomic_flag is_over_;
};

}  // namespace bluefog
