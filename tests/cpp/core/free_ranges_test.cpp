#include "core/FreeRanges.hpp"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <utility>

namespace bluefog::testing {
namespace {

std::pair<size_t, size_t> pairOf(const Range& range) {
  return {range.begin, range.end};
}

TEST(FreeRangesTest, TheFirstThatIsLargeEnoughIsTaken) {
  FreeRanges ranges(100);
  const Range first = *ranges.take(10);
  ranges.take(20);
  ranges.add(first);
  EXPECT_EQ(pairOf(*ranges.take(11)), std::pair(size_t{30}, size_t{41}));
  EXPECT_EQ(pairOf(*ranges.take(10)), std::pair(size_t{0}, size_t{10}));
}

TEST(FreeRangesTest, WhatIsGivenBackInAnyOrderIsOneAgain) {
  for (const std::array<size_t, 4> order :
       {std::array<size_t, 4>{0, 1, 2, 3}, {3, 2, 1, 0}, {0, 2, 1, 3}, {1, 3, 2, 0}}) {
    FreeRanges ranges(100);
    std::array<std::optional<Range>, 4> taken;
    for (std::optional<Range>& range : taken) {
      range = ranges.take(25);
      ASSERT_TRUE(range.has_value());
    }
    EXPECT_FALSE(ranges.take(1).has_value());
    for (const size_t i : order) {
      ranges.add(*taken[i]);
    }
    EXPECT_TRUE(ranges.take(100).has_value());
  }
}

TEST(FreeRangesTest, SayWhatIsFreeAroundWhatIsGivenBack) {
  FreeRanges ranges(30);
  const Range low = *ranges.take(10);
  const Range middle = *ranges.take(10);
  const Range high = *ranges.take(10);
  EXPECT_EQ(pairOf(ranges.add(low)), pairOf(low));
  EXPECT_EQ(pairOf(ranges.add(high)), pairOf(high));
  EXPECT_EQ(pairOf(ranges.add(middle)), std::pair(size_t{0}, size_t{30}));
}

TEST(FreeRangesTest, TellWhatIsTaken) {
  FreeRanges ranges(30);
  EXPECT_TRUE(ranges.taken().empty());
  const Range low = *ranges.take(10);
  const Range middle = *ranges.take(10);
  ranges.add(low);
  ASSERT_EQ(ranges.taken().size(), 1U);
  EXPECT_EQ(pairOf(ranges.taken().front()), pairOf(middle));
  ranges.add(middle);
  ranges.take(30);
  ASSERT_EQ(ranges.taken().size(), 1U);
  EXPECT_EQ(pairOf(ranges.taken().front()), std::pair(size_t{0}, size_t{30}));
}

}  // namespace
}  // namespace bluefog::testing
