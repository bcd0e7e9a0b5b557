#include "process_group/AbortHooks.hpp"

#include <c10/util/Exception.h>

#include <exception>
#include <utility>

namespace bluefog {

void AbortHooks::add(int64_t number, Hook hook) {
  Hook before;  // destroyed once the mutex is free, because it may need the GIL
  {
    const std::lock_guard lock(mutex_);
    before = std::exchange(hooks_[number], std::move(hook));
  }
}

void AbortHooks::remove(int64_t number) {
  std::map<int64_t, Hook>::node_type before;
  {
    const std::lock_guard lock(mutex_);
    before = hooks_.extract(number);
  }
  TORCH_CHECK_VALUE(!before.empty(), "[bluefog] unregister_abort_hook: there is no hook ", number);
}

void AbortHooks::call() const {
  std::map<int64_t, Hook> hooks;
  {
    const std::lock_guard lock(mutex_);
    hooks = hooks_;
  }
  for (const auto& [number, hook] : hooks) {
    try {
      hook();
    } catch (const std::exception& error) {
      TORCH_WARN("[bluefog] abort hook ", number, " has failed: ", error.what());
    }
  }
}

}  // namespace bluefog
