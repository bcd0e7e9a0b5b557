#include "transport/operations/GroupFailure.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "support/ranks.hpp"
#include "transport/memory/Segment.hpp"

namespace bluefog::testing {
namespace {

GroupFailure rulingNaming(int rank) {
  return {{Cause::kPeerFailed, {rank}, "rank " + std::to_string(rank) + " said it"},
          static_cast<uint64_t>(rank)};
}

TEST(GroupFailureTest, TheFirstFailureIsEverybodys) {
  for (int round = 0; round < 200; ++round) {
    const Segment segment(Segment::create(1), 1);
    std::vector<GroupFailure> agreed(4);
    runThreads(4, [&](int thread) {
      agreed[static_cast<size_t>(thread)] =
          publishFirst(segment.groupFailure(), rulingNaming(thread));
    });
    for (const GroupFailure& group_failure : agreed) {
      ASSERT_EQ(group_failure.failure.reason, agreed[0].failure.reason);
      ASSERT_EQ(group_failure.failure.ranks,
                std::vector<int>{static_cast<int>(group_failure.sequence)});
      ASSERT_EQ(group_failure.failure.cause, Cause::kPeerFailed);
    }
    ASSERT_EQ(readGroupFailure(segment.groupFailure())->failure.reason, agreed[0].failure.reason);
  }
}

TEST(GroupFailureTest, KeepsWhatFits) {
  const Segment segment(Segment::create(1), 1);
  EXPECT_FALSE(readGroupFailure(segment.groupFailure()).has_value());
  publishFirst(segment.groupFailure(),
               {{Cause::kTimeout, std::vector<int>(kMostRanks + 1, 5), std::string(5000, 'x')}, 3});
  const std::optional<GroupFailure> read = readGroupFailure(segment.groupFailure());
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->failure.cause, Cause::kTimeout);
  EXPECT_EQ(read->failure.ranks, std::vector<int>(kMostRanks, 5));
  EXPECT_EQ(read->failure.reason, std::string(GroupFailureCell::kMostText, 'x'));
}

TEST(GroupFailureTest, GarbageIsReadWithinBounds) {
  const Segment segment(Segment::create(1), 1);
  GroupFailureCell& cell = segment.groupFailure();
  cell.cause = 0xffffffff;
  cell.ranks_n = 0xffffffff;
  cell.text_n = 0xffffffff;
  cell.state.store(GroupFailureCell::kWritten);
  const std::optional<GroupFailure> read = readGroupFailure(cell);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->failure.ranks.size(), kMostRanks);
  EXPECT_EQ(read->failure.reason.size(), GroupFailureCell::kMostText);
}

TEST(GroupFailureTest, AWriterThatWasKilledHoldsUpNobody) {
  const Segment segment(Segment::create(1), 1);
  segment.groupFailure().state.store(GroupFailureCell::kBeingWritten);
  EXPECT_EQ(publishFirst(segment.groupFailure(), rulingNaming(3)).failure.ranks,
            std::vector<int>{3});
}

}  // namespace
}  // namespace bluefog::testing
