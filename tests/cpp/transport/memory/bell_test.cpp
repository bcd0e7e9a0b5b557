#include "transport/memory/Bell.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "support/ranks.hpp"

namespace bluefog::testing {
namespace {

TEST(BellTest, NoWakeUpIsLost) {
  constexpr uint32_t kRounds = 5'000;
  std::array<Bell, 2> bells;
  std::array<std::atomic<uint32_t>, 2> counts{};
  const auto start = Clock::now();
  runThreads(2, [&](int self) {
    const auto me = static_cast<size_t>(self);
    for (uint32_t round = 1; round <= kRounds; ++round) {
      counts[me].store(round, std::memory_order_release);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      bells[1 - me].ring();
      while (counts[1 - me].load(std::memory_order_acquire) < round) {
        const uint32_t ticket = bells[me].lieDown();
        if (counts[1 - me].load(std::memory_order_acquire) < round) {
          bells[me].sleep(ticket, 5s);
        }
      }
    }
  });
  EXPECT_LT(Clock::now() - start, 5s) << "a sleeper was not woken";
}

TEST(BellTest, SleepEndsAtItsLimit) {
  Bell bell;
  const auto start = Clock::now();
  bell.sleep(bell.lieDown(), 30ms);
  EXPECT_GE(Clock::now() - start, 25ms);
}

TEST(BellTest, RingsBeforeSleepEndIt) {
  Bell bell;
  const uint32_t ticket = bell.lieDown();
  bell.ring();
  const auto start = Clock::now();
  bell.sleep(ticket, 10s);
  EXPECT_LT(Clock::now() - start, 5s);
}

}  // namespace
}  // namespace bluefog::testing
