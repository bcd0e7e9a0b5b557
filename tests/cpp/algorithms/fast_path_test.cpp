#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "algorithms/NeighborFastPath.hpp"
#include "support/ranks.hpp"

namespace bluefog::testing {
namespace {

using Floats = std::vector<float>;
using Weighted = std::vector<WeightedRank>;

// A Sum is a rank's call, which sums its own tensor and its sources' tensors.
class Sum {
 public:
  Sum(Rank& me, Weighted sources, Weighted destinations, size_t count, float value)
      : me_(me),
        sources_(std::move(sources)),
        destinations_(std::move(destinations)),
        input_(count, value),
        output_(count, -1) {}

  Engine::Attempt tryFastPath() {
    const NeighborFastPath::SmallExchange call{
        signatureOf<float>(OpKind::kNeighborAllReduce, input_.size()),
        Counter(),
        1.0,
        sources_,
        destinations_,
        1.0,
        bytesOf(input_),
        bytesOf(output_)};
    NeighborFastPath exchange(call, [this] { return operation({}); });
    return NeighborFastPath::isPossible(call) ? me_.engine.tryFastPath(exchange)
                                              : Engine::Attempt();
  }
  // Makes the call, in whatever way it goes, and returns the sum.
  const Floats& run() {
    const Engine::Attempt attempt = tryFastPath();
    if (attempt.op) {
      me_.finish(attempt.op);
    } else if (attempt.sequence == 0) {
      me_.run(operation(destinations_));
    }
    return output_;
  }
  const Floats& output() const { return output_; }

 private:
  MessageOpPtr operation(const Weighted& destinations) {
    return me_.neighborSum(input_, 1.0, sources_, 1.0, output_, destinations);
  }

  Rank& me_;
  Weighted sources_;
  Weighted destinations_;
  Floats input_;
  Floats output_;
};

Sum ringSum(Rank& me, size_t count, float value) {
  return {me,
          {{(me.self + me.size - 1) % me.size, 1.0}},
          {{(me.self + 1) % me.size, 1.0}},
          count,
          value};
}

bool holdsOnly(const Floats& data, float value) {
  return holds(data, [&](size_t) { return value; });
}

TEST(FastPathTest, SumsAreRightInWhateverWayTheyGo) {
  for (int n : {1, 2, 3, 5}) {
    runRanks(n, [n](Rank& me) {
      for (int round = 0; round < 500; ++round) {
        const size_t count = round % 50 == 49 ? kMuch : static_cast<size_t>(round % 7);
        Sum sum =
            n == 1 ? Sum(me, {}, {}, count, 1) : ringSum(me, count, static_cast<float>(round));
        const float expected = n == 1 ? 1.0f : 2.0f * static_cast<float>(round);
        EXPECT_TRUE(holdsOnly(sum.run(), expected)) << round;
      }
    });
  }
}

TEST(FastPathTest, WhatLetsItWaitBecomesAnOperation) {
  runRanks(2, [](Rank& me) {
    Sum sum = ringSum(me, 3, 1);
    me.synchronize();
    if (me.self == 1) {
      std::this_thread::sleep_for(50ms);
      EXPECT_TRUE(holdsOnly(sum.run(), 2));
      return;
    }
    const Engine::Attempt attempt = sum.tryFastPath();
    ASSERT_NE(attempt.op, nullptr);
    EXPECT_EQ(attempt.op->sequence, attempt.sequence);
    me.finish(attempt.op);
    EXPECT_TRUE(holdsOnly(sum.output(), 2));
  });
}

TEST(FastPathTest, NothingIsDoneBesideAnotherOperation) {
  runRanks(2, [](Rank& me) {
    Floats got(1);
    const OpPtr receive = me.start(me.receive(got, 1 - me.self));
    EXPECT_EQ(ringSum(me, 3, 1).tryFastPath().sequence, 0u);
    me.synchronize();  // The other rank's receive must not end before it tries.
    me.run(me.send(Floats{4}, 1 - me.self));
    me.finish(receive);
    EXPECT_TRUE(holdsOnly(ringSum(me, 3, 1).run(), 2));
  });
}

TEST(FastPathTest, AMismatchIsToldOnBothSides) {
  runRanks(2, [](Rank& me) {
    Sum sum = ringSum(me, me.self == 0 ? 3 : 4, 1);
    EXPECT_EQ(failureOf([&] { sum.run(); }).cause(), Cause::kMismatch);
  });
}

TEST(FastPathTest, ManyThreadsOfARankTakeTurns) {
  runRanks(2, [](Rank& me) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&me] {
        for (int round = 0; round < 200; ++round) {
          EXPECT_TRUE(holdsOnly(ringSum(me, 2, 1).run(), 2));
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  });
}

// The sender gets credit in time for frames, too, that its receiver takes without an operation.
TEST(FastPathTest, CreditComesBack) {
  runRanks(2, [](Rank& me) {
    const size_t count = Lane::payload() / sizeof(float);
    for (int round = 0; round < 600; ++round) {
      EXPECT_TRUE(holdsOnly(ringSum(me, count, 1).run(), 2));
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
