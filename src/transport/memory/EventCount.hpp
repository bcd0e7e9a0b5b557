#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "core/Futex.hpp"

namespace bluefog {

// An EventCount wakes a sleeping rank. There is one for each rank in shared memory (and one in each
// window slot, for its owner). The sleeper announces itself with prepareWait(), looks once more
// whether there is something to do, and then calls wait(). A thread that makes work calls notify()
// afterwards, which costs one load while nobody sleeps.
// Thread safety: any thread of any process may call any method.
struct alignas(64) EventCount {
  std::atomic<uint32_t> epoch{0};
  std::atomic<uint32_t> waiting{0};

  // Wakes all that sleep. The caller must have ordered what it published before this call with a
  // sequentially consistent fence.
  void notify() {
    if (waiting.load(std::memory_order_relaxed) != 0) {
      waiting.store(0, std::memory_order_relaxed);
      epoch.fetch_add(1, std::memory_order_release);
      futexWakeAll(epoch);
    }
  }

  // Returns the ticket that wait() takes. Work that is published after this call is either seen by
  // the sleeper's last look or ends its sleep. A sleeper that then finds something to do need not
  // withdraw: that costs one needless notify(), whereas withdrawing could silence the announcement
  // of another thread.
  uint32_t prepareWait() {
    const uint32_t ticket = epoch.load(std::memory_order_acquire);
    waiting.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return ticket;
  }
  // Sleeps until a notify() that came after the ticket was taken, or until the limit has passed. It
  // may also return early.
  void wait(uint32_t ticket, std::chrono::nanoseconds limit) { futexWait(epoch, ticket, limit); }
};

}  // namespace bluefog
