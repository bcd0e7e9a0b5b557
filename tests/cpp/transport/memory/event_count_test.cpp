#include "transport/memory/EventCount.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "support/ranks.hpp"

namespace bluefog::testing {
namespace {

TEST(EventCountTest, NoWakeUpIsLost) {
  constexpr uint32_t kRounds = 5'000;
  std::array<EventCount, 2> event_counts;
  std::array<std::atomic<uint32_t>, 2> counts{};
  const auto start = Clock::now();
  runThreads(2, [&](int self) {
    const auto me = static_cast<size_t>(self);
    for (uint32_t round = 1; round <= kRounds; ++round) {
      counts[me].store(round, std::memory_order_release);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      event_counts[1 - me].notify();
      while (counts[1 - me].load(std::memory_order_acquire) < round) {
        const uint32_t ticket = event_counts[me].prepareWait();
        if (counts[1 - me].load(std::memory_order_acquire) < round) {
          event_counts[me].wait(ticket, 5s);
        }
      }
    }
  });
  EXPECT_LT(Clock::now() - start, 5s) << "a sleeper was not woken";
}

TEST(EventCountTest, SleepEndsAtItsLimit) {
  EventCount event_count;
  const auto start = Clock::now();
  event_count.wait(event_count.prepareWait(), 30ms);
  EXPECT_GE(Clock::now() - start, 25ms);
}

TEST(EventCountTest, RingsBeforeSleepEndIt) {
  EventCount event_count;
  const uint32_t ticket = event_count.prepareWait();
  event_count.notify();
  const auto start = Clock::now();
  event_count.wait(ticket, 10s);
  EXPECT_LT(Clock::now() - start, 5s);
}

}  // namespace
}  // namespace bluefog::testing
