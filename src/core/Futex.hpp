#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

namespace bluefog {

// These futexes lie in memory that processes share, so they are used without FUTEX_PRIVATE_FLAG.

// Waits while `word` equals `expected`, but no longer than `limit`. The wait may also end early, so
// the caller must look at the word again.
inline void futexWait(std::atomic<uint32_t>& word, uint32_t expected,
                      std::chrono::nanoseconds limit) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
  const timespec relative{static_cast<time_t>(seconds.count()),
                          static_cast<long>((limit - seconds).count())};
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, expected, &relative, nullptr,
            0);
}

inline void futexWakeAll(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr,
            0);
}

}  // namespace bluefog
