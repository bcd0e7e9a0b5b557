#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "core/Futex.hpp"

namespace bluefog {

// How a rank is woken: one per rank, in shared memory. The sleeper says that it sleeps, looks once
// more whether there is something to do, and sleeps; whoever makes something to do rings, which
// costs a load when nobody sleeps.
struct alignas(64) Bell {
  std::atomic<uint32_t> rings{0};
  std::atomic<uint32_t> sleeping{0};

  void ring() {
    if (sleeping.load(std::memory_order_relaxed) != 0) {
      sleeping.store(0, std::memory_order_relaxed);
      rings.fetch_add(1, std::memory_order_release);
      futexWakeAll(rings);
    }
  }

  // The ticket that sleep() takes; whatever is published after this call is seen by the sleeper's
  // last look or ends its sleep. Who then finds something to do need not take it back: that costs
  // somebody one needless ring. (Taking it back could silence another thread's.)
  uint32_t lieDown() {
    const uint32_t ticket = rings.load(std::memory_order_acquire);
    sleeping.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return ticket;
  }
  void sleep(uint32_t ticket, std::chrono::nanoseconds limit) { futexWait(rings, ticket, limit); }
};

}  // namespace bluefog
