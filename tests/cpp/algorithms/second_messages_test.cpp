// These tests have messages that belong to another message, whatever has become of that one.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <vector>

#include "algorithms/Algorithms.hpp"
#include "support/processes.hpp"
#include "support/stepped.hpp"

namespace bluefog::testing {
namespace {

constexpr size_t kCount = 100'000;  // more elements than one call can send at once

class SecondMessagesTest : public ::testing::Test {
 protected:
  // Starts the sum of the one machine that both ranks are on.
  OpPtr ofMachine(SteppedRank& rank) {
    const MessageOpPtr op = rank.call(OpKind::kHierarchicalNeighborAllReduce, kCount);
    Hierarchy machine;
    machine.locals = {0, 1};
    machine.local_rank = rank.members.rank;
    machine.divisor = 2;
    addHierarchicalSum(rank.scheduler.mailbox(), *op, std::move(machine), bytesOf(input_),
                       bytesOf(part_[rank.members.rank]), bytesOf(output_[rank.members.rank]), 0);
    rank.scheduler.add(op);
    return op;
  }
  OpPtr average(SteppedRank& rank, std::chrono::milliseconds limit = std::chrono::minutes(1)) {
    const int other = 1 - rank.members.rank;
    return rank.average({bytesOf(input_), kCount * sizeof(float)},
                        spanOf(output_[rank.members.rank]), {other}, {other}, std::nullopt,
                        Deadline::in(limit));
  }
  void endAll(const std::vector<OpPtr>& ops) {
    size_t ended = 0;
    while (ended < ops.size()) {
      for (SteppedRank* rank : {&zero_, &one_}) {
        rank->scheduler.progress();
        rank->scheduler.tick(Deadline::Clock::now());
        ended += rank->scheduler.takeFinished().size();
      }
    }
  }
  void settle() {
    for (SteppedRank* rank : {&zero_, &one_}) {
      do {
        rank->scheduler.lookIntoLanes();
      } while (rank->scheduler.progress());
    }
  }
  void expectQuiet() {
    settle();
    EXPECT_TRUE(zero_.scheduler.isQuiet());
    EXPECT_TRUE(one_.scheduler.isQuiet());
  }

  const Fd memory_ = Segment::create(2);
  SteppedRank zero_{memory_, 0, 2, Links(2)};
  SteppedRank one_{memory_, 1, 2, Links(2)};
  const std::vector<float> input_ = numbers(kCount, 1);
  std::vector<float> part_[2] = {std::vector<float>(kCount), std::vector<float>(kCount)};
  std::vector<float> output_[2] = {std::vector<float>(kCount), std::vector<float>(kCount)};
};

TEST_F(SecondMessagesTest, LeaveNothingWhereTheirFirstOnesMetSomethingElse) {
  const std::vector<OpPtr> unlike = {ofMachine(zero_), average(one_)};
  endAll(unlike);
  for (const OpPtr& op : unlike) {
    EXPECT_TRUE(errorOf(*op));
  }
  const std::vector<OpPtr> alike = {ofMachine(zero_), ofMachine(one_)};
  endAll(alike);
  for (const OpPtr& op : alike) {
    EXPECT_FALSE(errorOf(*op));
  }
  EXPECT_TRUE(are(output_[0], 1));
  EXPECT_TRUE(are(output_[1], 1));
  expectQuiet();
}

TEST_F(SecondMessagesTest, AreNotKeptOfACallThatWasGivenUp) {
  average(zero_, std::chrono::milliseconds(0));
  zero_.tick();
  EXPECT_TRUE(errorOf(*zero_.scheduler.takeFinished().front()));
  const OpPtr late = ofMachine(one_);
  endAll({late});
  EXPECT_TRUE(errorOf(*late));
  settle();
  // The first average tells what could not be told before.
  endAll({average(zero_), average(one_)});
  expectQuiet();
}

}  // namespace
}  // namespace bluefog::testing
