#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "core/Futex.hpp"

namespace bluefog {

// How a rank is woken: one per rank, in shared memory. The sleeper says that it sleeps, looks once
// more whether there is something to do, and sleeps; whoever makes something to do rings, which
// costs a load when nobody sleeps.
struct alignas(64) EventCount {
  std::atomic<uint32_t> epoch{0};
  std::atomic<uint32_t> waiting{0};

  void notify() {
    if (waiting.load(std::memory_order_relaxed) != 0) {
      waiting.store(0, std::memory_order_relaxed);
      epoch.fetch_add(1, std::memory_order_release);
      futexWakeAll(epoch);
    }
  }

  // The ticket that sleep() takes; whatever is published after this call is seen by the sleeper's
  // last look or ends its sleep. Who then finds something to do need not take it back: that costs
  // somebody one needless ring. (Taking it back could silence another thread's.)
  uint32_t prepareWait() {
    const uint32_t ticket = epoch.load(std::memory_order_acquire);
    waiting.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return ticket;
  }
  void wait(uint32_t ticket, std::chrono::nanoseconds limit) { futexWait(epoch, ticket, limit); }
};

}  // namespace bluefog
