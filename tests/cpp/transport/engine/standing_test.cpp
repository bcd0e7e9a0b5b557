#include "transport/memory/BlockedState.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace bluefog {
namespace {

BlockedState::Wait waiting(uint64_t sequence) {
  BlockedState::Wait wait;
  wait.called.count = sequence;
  wait.sequence = sequence;
  wait.lacking.add(static_cast<int>(sequence % kMostRanks));
  return wait;
}

TEST(BlockedStateTest, SaysNothingAtFirstAndAfterwards) {
  BlockedState standing;
  EXPECT_FALSE(standing.read().has_value());
  standing.set(waiting(7));
  EXPECT_TRUE(standing.read().has_value());
  standing.clear();
  EXPECT_FALSE(standing.read().has_value());
}

TEST(BlockedStateTest, NamesEachRankApart) {
  BlockedState standing;
  for (int rank : {0, 63, 64, 255}) {
    BlockedState::Wait wait;
    wait.lacking.add(rank);
    standing.set(wait);
    for (int other = 0; other < static_cast<int>(kMostRanks); ++other) {
      EXPECT_EQ(standing.read()->lacking.has(other), other == rank);
    }
  }
}

TEST(BlockedStateTest, IsNeverReadHalfWritten) {
  BlockedState standing;
  std::atomic<bool> end{false};
  std::thread writer([&] {
    for (uint64_t i = 1; !end; ++i) {
      standing.set(waiting(i));
      if (i % 5 == 0) {
        standing.clear();
      }
    }
  });
  for (int looks = 0; looks < 100000; ++looks) {
    if (const std::optional<BlockedState::Wait> wait = standing.read()) {
      ASSERT_EQ(wait->called.count, wait->sequence);
      ASSERT_TRUE(wait->lacking.has(static_cast<int>(wait->sequence % kMostRanks)));
    }
  }
  end = true;
  writer.join();
}

}  // namespace
}  // namespace bluefog
