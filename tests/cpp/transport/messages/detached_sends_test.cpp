#include "transport/messages/DetachedSends.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "support/ranks.hpp"
#include "support/stepped.hpp"

namespace bluefog::testing {
namespace {

// Rank 1 sends a large tensor to rank 0 and averages with rank 2, which dies before its message
// comes. The test drives ranks 0 and 1 itself, step by step.
class DetachedSendsTest : public ::testing::Test {
 protected:
  DetachedSendsTest() { one_.emplace(memory_, 1, 4, std::move(links_.links)); }

  OpPtr averageInVain(const std::vector<int>& destinations) {
    return one_->average(inputSpan(), spanOf(output_), {2}, destinations);
  }
  ConstSpan inputSpan() const { return {bytesOf(input_), input_.size() * sizeof(float)}; }
  void failForWantOfTwo(const std::vector<int>& destinations = {0}) {
    const OpPtr op = averageInVain(destinations);
    links_.die(2);
    one_->tick();
    const std::optional<Error> error = errorOf(*op);
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->ranks(), Ranks{2});
    input_.assign(input_.size(), -1);  // its caller may do so from now on
  }
  // Makes passes until rank 0's operation has ended, and returns its error.
  std::optional<Error> receive(size_t count) {
    std::vector<float> none(count);
    got_.assign(count, 0);
    const OpPtr op = zero_.average({bytesOf(none), count * sizeof(float)}, spanOf(got_), {1}, {});
    while (!zero_.scheduler.anyFinished()) {
      zero_.scheduler.progress();
      one_->scheduler.progress();
    }
    zero_.scheduler.takeFinished();
    return errorOf(*op);
  }

  const Fd memory_ = Segment::create(4);
  LinksOfOne links_;
  std::vector<float> input_ = numbers(kMuch, 1);
  std::vector<float> output_ = std::vector<float>(kMuch);
  std::vector<float> got_;
  SteppedRank zero_{memory_, 0, 4, Links(4)};
  std::optional<SteppedRank> one_;
};

TEST_F(DetachedSendsTest, TheLivingGetWhatWasSentBeforeItsMemoryChanged) {
  failForWantOfTwo();
  EXPECT_TRUE(one_->scheduler.owesAnything());
  EXPECT_FALSE(receive(kMuch));
  EXPECT_TRUE(are(got_, 1));
  one_->scheduler.progress();
  EXPECT_FALSE(one_->scheduler.owesAnything());
}

TEST_F(DetachedSendsTest, BeyondABoundItIsBrokenOff) {
  failForWantOfTwo();
  const size_t calls = (size_t{300} << 20) / (kMuch * sizeof(float));
  for (size_t call = 1; call < calls; ++call) {
    averageInVain({0});
    one_->tick();
  }
  size_t received = 0;
  while (!receive(kMuch)) {
    ++received;
  }
  EXPECT_GT(received, calls / 2);
  EXPECT_LT(received, calls);
  const std::optional<Error> error = receive(kMuch);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->cause(), Cause::kPeerFailed);
  EXPECT_EQ(error->ranks(), Ranks{2});
}

TEST_F(DetachedSendsTest, WhatGoesToTwoRanksIsKeptOnce) {
  failForWantOfTwo({0, 3});
  const size_t calls = (size_t{240} << 20) / (kMuch * sizeof(float));
  for (size_t call = 1; call < calls; ++call) {
    averageInVain({0, 3});
    one_->tick();
  }
  for (size_t call = 0; call < calls; ++call) {
    ASSERT_FALSE(receive(kMuch)) << call;
  }
}

TEST_F(DetachedSendsTest, WhatIsLargerThanTheBoundIsNotCopied) {
  input_.resize((size_t{257} << 20) / sizeof(float));
  output_.resize(input_.size());
  failForWantOfTwo();
  const std::optional<Error> error = receive(input_.size());
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->ranks(), Ranks{2});
}

TEST_F(DetachedSendsTest, EndsWithItsReceiver) {
  failForWantOfTwo();
  links_.die(0);
  one_->tick();
  EXPECT_FALSE(one_->scheduler.owesAnything());
}

TEST_F(DetachedSendsTest, EndsWithItsGroup) {
  failForWantOfTwo();
  one_.reset();
}

TEST_F(DetachedSendsTest, ARefusalIsToldLater) {
  failForWantOfTwo();
  const std::optional<Error> refused = receive(kMuch + 1);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->cause(), Cause::kMismatch);
  one_->scheduler.progress();
  std::vector<float> nothing(1);
  const OpPtr next = one_->average({bytesOf(nothing), sizeof(float)}, spanOf(nothing), {}, {});
  const std::optional<Error> told = errorOf(*next);
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->ranks(), (Ranks{0, 1}));
}

}  // namespace
}  // namespace bluefog::testing
