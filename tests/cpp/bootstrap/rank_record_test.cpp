#include "bootstrap/RankRecord.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

namespace bluefog::testing {
namespace {

TEST(RankRecordTest, RecordsSurviveTheStore) {
  const RankRecord mine = describeThisRank("", {3, 12});
  const RankRecord read = RankRecord::decode(mine.encode());
  EXPECT_EQ(read.encode(), mine.encode());
  EXPECT_EQ(read.pid, ::getpid());
  EXPECT_EQ(read.members, (std::vector<int>{3, 12}));
  EXPECT_NE(describeThisRank().name(), mine.name());
  EXPECT_NE(describeThisRank().secret, mine.secret);
}

}  // namespace
}  // namespace bluefog::testing
