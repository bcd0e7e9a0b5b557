#include "transport/operations/Verdict.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "support/ranks.hpp"
#include "transport/memory/Segment.hpp"

namespace bluefog::testing {
namespace {

Ruling rulingNaming(int rank) {
  return {{Cause::kPeerFailed, {rank}, "rank " + std::to_string(rank) + " said it"},
          static_cast<uint64_t>(rank)};
}

TEST(VerdictTest, TheFirstFailureIsEverybodys) {
  for (int round = 0; round < 200; ++round) {
    const Segment segment(Segment::create(1), 1);
    std::vector<Ruling> agreed(4);
    runThreads(4, [&](int thread) {
      agreed[static_cast<size_t>(thread)] = agreeOn(segment.verdict(), rulingNaming(thread));
    });
    for (const Ruling& ruling : agreed) {
      ASSERT_EQ(ruling.failure.reason, agreed[0].failure.reason);
      ASSERT_EQ(ruling.failure.ranks, std::vector<int>{static_cast<int>(ruling.sequence)});
      ASSERT_EQ(ruling.failure.cause, Cause::kPeerFailed);
    }
    ASSERT_EQ(readVerdict(segment.verdict())->failure.reason, agreed[0].failure.reason);
  }
}

TEST(VerdictTest, KeepsWhatFits) {
  const Segment segment(Segment::create(1), 1);
  EXPECT_FALSE(readVerdict(segment.verdict()).has_value());
  agreeOn(segment.verdict(),
          {{Cause::kTimeout, std::vector<int>(kMostRanks + 1, 5), std::string(5000, 'x')}, 3});
  const std::optional<Ruling> read = readVerdict(segment.verdict());
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->failure.cause, Cause::kTimeout);
  EXPECT_EQ(read->failure.ranks, std::vector<int>(kMostRanks, 5));
  EXPECT_EQ(read->failure.reason, std::string(Verdict::kMostText, 'x'));
}

TEST(VerdictTest, GarbageIsReadWithinBounds) {
  const Segment segment(Segment::create(1), 1);
  Verdict& verdict = segment.verdict();
  verdict.cause = 0xffffffff;
  verdict.ranks_n = 0xffffffff;
  verdict.text_n = 0xffffffff;
  verdict.state.store(Verdict::kWritten);
  const std::optional<Ruling> read = readVerdict(verdict);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->failure.ranks.size(), kMostRanks);
  EXPECT_EQ(read->failure.reason.size(), Verdict::kMostText);
}

TEST(VerdictTest, AWriterThatWasKilledHoldsUpNobody) {
  const Segment segment(Segment::create(1), 1);
  segment.verdict().state.store(Verdict::kBeingWritten);
  EXPECT_EQ(agreeOn(segment.verdict(), rulingNaming(3)).failure.ranks, std::vector<int>{3});
}

}  // namespace
}  // namespace bluefog::testing
