#include "process_group/work/CompletionHooks.hpp"

#include <utility>

namespace bluefog {

void CompletionHooks::add(int64_t id, Hook hook) {
  change([&](Hooks& hooks) { hooks[id] = std::move(hook); });
}

void CompletionHooks::remove(int64_t id) {
  change([&](Hooks& hooks) { hooks.erase(id); });
}

void CompletionHooks::change(const std::function<void(Hooks&)>& change) {
  const std::lock_guard lock(mutex_);
  auto changed = std::make_shared<Hooks>(*hooks_);
  change(*changed);
  any_.store(!changed->empty(), std::memory_order_release);
  hooks_ = std::move(changed);
}

void CompletionHooks::call(uint64_t key, float milliseconds) const {
  std::shared_ptr<const Hooks> hooks;
  {
    const std::lock_guard lock(mutex_);
    hooks = hooks_;
  }
  for (const auto& [id, hook] : *hooks) {
    hook(key, milliseconds);
  }
}

}  // namespace bluefog
