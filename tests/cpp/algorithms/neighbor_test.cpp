#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "support/ranks.hpp"

namespace bluefog::testing {
namespace {

TEST(NeighborTest, BothSidesTellAMismatch) {
  for (size_t count : {kLittle, kMuch}) {
    Errors errors(2);
    runRanks(2, [&](Rank& me) {
      const size_t mine = count + static_cast<size_t>(me.self);
      const std::vector<float> input(mine);
      std::vector<float> output(mine);
      const int peer = 1 - me.self;
      errors.set(me.self, failureOf([&] {
                   me.run(me.neighborSum(input, 1, {{peer, 1}}, 2, output, {{peer, 1}}));
                 }));
    });
    ASSERT_TRUE(errors.all());
    EXPECT_EQ(errors[0].cause(), Cause::kMismatch);
    EXPECT_EQ(errors[0].ranks(), (Ranks{0, 1}));
    EXPECT_EQ(errors[1].ranks(), (Ranks{0, 1}));
    EXPECT_EQ(story(errors[0]), story(errors[1]));
  }
}

// The tensors are small, so each rank has sent its own, and refuses what the other one sent.
TEST(NeighborTest, WhoHasToldAMismatchDoesNotTellItAgain) {
  runRanks(2, [](Rank& me) {
    const std::vector<WeightedRank> peer = {{1 - me.self, 1}};
    const auto call = [&](size_t count) {
      const std::vector<float> input(count);
      std::vector<float> output(count);
      me.run(me.neighborSum(input, 1, peer, 2, output, peer));
    };
    EXPECT_EQ(failureOf([&] { call(kLittle + static_cast<size_t>(me.self)); }).cause(),
              Cause::kMismatch);
    me.synchronize();
    call(kLittle);
    call(kLittle);
  });
}

// Rank 2 waits for rank 3, too, which never calls.
TEST(NeighborTest, WhoIsCutOffByAMismatchOfOthersHearsSo) {
  runRanksUnheard(4, [&](Rank& me) {
    if (me.self == 3) {
      return;
    }
    const size_t count = me.self == 0 ? kMuch + 1 : kMuch;
    const std::vector<float> input(count);
    std::vector<float> output(count);
    const std::vector<WeightedRank> sources[] = {{{1, 1}}, {{0, 1}, {2, 1}}, {{1, 1}, {3, 1}}};
    const std::vector<WeightedRank> targets[] = {{{1, 1}}, {{0, 1}, {2, 1}}, {{1, 1}}};
    const Error error = failureOf(
        [&] { me.run(me.neighborSum(input, 1, sources[me.self], 2, output, targets[me.self])); });
    EXPECT_EQ(error.cause(), Cause::kMismatch);
    EXPECT_EQ(error.ranks(), (Ranks{0, 1}));
    if (me.self == 2) {
      EXPECT_EQ(story(error), "ranks did not agree on the matching operation of rank 1");
    }
  });
}

TEST(NeighborTest, AllWhoDoNotTakeWhatItSendsAreNamed) {
  runRanksUnheard(3, [&](Rank& me) {
    if (me.self != 0) {
      return;
    }
    const std::vector<float> input(kMuch);
    std::vector<float> output(kMuch);
    me.limit = 100ms;
    const Error error =
        failureOf([&] { me.run(me.neighborSum(input, 1, {}, 1, output, {{1, 1}, {2, 1}})); });
    EXPECT_EQ(error.ranks(), (Ranks{1, 2}));
  });
}

// Rank 1 has waited for a long time already when rank 0 begins.
TEST(NeighborTest, WhoIsCutOffByAnothersTimeoutNamesTheSameRank) {
  runRanksUnheard(3, [&](Rank& me) {
    if (me.self == 2) {
      return;
    }
    const std::vector<float> input(kMuch);
    std::vector<float> output(kMuch);
    const std::vector<WeightedRank> others = {{1 - me.self, 1}, {2, 1}};
    me.limit = me.self == 0 ? 30s : 100ms;
    const Error error =
        failureOf([&] { me.run(me.neighborSum(input, 1, others, 3, output, others)); });
    EXPECT_EQ(error.cause(), Cause::kTimeout);
    EXPECT_EQ(error.ranks(), Ranks{2});
    if (me.self == 0) {
      EXPECT_EQ(story(error),
                "rank 1 had already given up the matching operation: nothing from rank 2");
    }
  });
}

std::vector<WeightedRank> allBut(int self, int size, double weight) {
  std::vector<WeightedRank> others;
  for (int rank = 0; rank < size; ++rank) {
    if (rank != self) {
      others.push_back({rank, weight * (rank + 1)});
    }
  }
  return others;
}

// The weights are powers of two, so that every sum is exact.
TEST(NeighborTest, SumsWhatNeighborsSend) {
  for (int n = 1; n <= 4; ++n) {
    runRanks(n, [](Rank& me) {
      const size_t frame = Lane::payload() / sizeof(float);
      for (size_t count :
           {size_t{0}, size_t{1}, kLittle, frame - 1, frame, frame + 1, size_t{262'145}}) {
        const std::vector<float> input = numbers(count, me.self);
        std::vector<float> output(count, -1);
        const OpPtr op = me.neighborSum(input, 2, allBut(me.self, me.size, 1), 4, output,
                                        allBut(me.self, me.size, 0.5));
        me.run(op);
        // Rank r weighs what it gets from s by s + 1, and s weighs what it gives r by (r + 1) / 2.
        Lists<float> sent;
        for (int rank = 0; rank < me.size; ++rank) {
          sent.push_back(numbers(count, rank));
        }
        ASSERT_TRUE(holds(output,
                          [&](size_t i) {
                            float sum = 2 * input[i];
                            for (int rank = 0; rank < me.size; ++rank) {
                              if (rank != me.self) {
                                sum += static_cast<float>((rank + 1) * (me.self + 1)) / 2 *
                                       sent[static_cast<size_t>(rank)][i];
                              }
                            }
                            return sum / 4;
                          }))
            << me.size << " ranks, " << count << " elements";
      }
    });
  }
}

TEST(NeighborTest, SumsMayBeTooLargeForTheCaches) {
  runRanks(2, [](Rank& me) {
    const std::vector<float> input = numbers((17u << 20) / sizeof(float), me.self);
    std::vector<float> output(input.size());
    const int peer = 1 - me.self;
    me.run(me.neighborSum(input, 1, {{peer, 1}}, 2, output, {{peer, 1}}));
    const std::vector<float> theirs = numbers(input.size(), peer);
    EXPECT_TRUE(holds(output, [&](size_t i) { return (input[i] + theirs[i]) / 2; }));
  });
}

TEST(NeighborTest, AWeightOfZeroKeepsInfinityOut) {
  runRanks(2, [](Rank& me) {
    for (size_t count : {kLittle, kMuch}) {
      const float bad = me.self == 0 ? 1 : std::numeric_limits<float>::infinity();
      const std::vector<float> input(count, bad);
      std::vector<float> output(count);
      const int peer = 1 - me.self;
      me.run(me.neighborSum(input, 1, {{peer, 0}}, 1, output, {{peer, 1}}));
      EXPECT_TRUE(holds(output, [&](size_t) { return bad; }));
    }
  });
}

struct InFlight {
  std::vector<float> input;
  std::vector<float> output;
  OpPtr op;
  int source;
  int round;
};

void startTowards(Rank& me, InFlight& flight, int step, int round) {
  flight.source = (me.self + step + me.size) % me.size;
  flight.round = round;
  const int destination = (me.self - step + me.size) % me.size;
  flight.input = numbers(kMuch, me.self * 100 + step * 10 + round);
  flight.output.assign(kMuch, -1);
  const int64_t tag = step > 0 ? kOrders : 2 * kOrders;
  flight.op = me.start(me.neighborSum(flight.input, 1, {{flight.source, 1}}, 1, flight.output,
                                      {{destination, 1}}, tag));
}

void expectSummed(const InFlight& flight, int step) {
  const std::vector<float> theirs = numbers(kMuch, flight.source * 100 + step * 10 + flight.round);
  EXPECT_TRUE(holds(flight.output, [&](size_t i) { return flight.input[i] + theirs[i]; }));
}

// Half of the ranks start with the ring to the left, the others with the ring to the right.
TEST(NeighborTest, LargeOnesInOppositeOrdersDoNotBlockEachOther) {
  for (int n : {3, 4}) {
    runRanks(n, [](Rank& me) {
      std::vector<InFlight> left(4);
      std::vector<InFlight> right(4);
      for (int turn = 0; turn < 2; ++turn) {
        const bool rightwards = (me.self + turn) % 2 == 0;
        int round = 0;
        for (InFlight& flight : rightwards ? right : left) {
          startTowards(me, flight, rightwards ? 1 : -1, round++);
        }
      }
      for (const InFlight& flight : right) {
        me.finish(flight.op);
        expectSummed(flight, 1);
      }
      for (const InFlight& flight : left) {
        me.finish(flight.op);
        expectSummed(flight, -1);
      }
    });
  }
}

// An operation that is given up must not hold the lanes that the next operation needs.
TEST(NeighborTest, ATimeoutFreesTheLanes) {
  runRanks(3, [](Rank& me) {
    const std::vector<float> input = numbers(kMuch, me.self);
    std::vector<float> output(kMuch);
    const int right = (me.self + 1) % 3;
    const int left = (me.self + 2) % 3;
    if (me.self != 2) {
      me.limit = 150ms;
      const OpPtr op =
          me.neighborSum(input, 1, {{right, 1}, {left, 1}}, 1, output, {{right, 1}, {left, 1}});
      const Error error = failureOf([&] { me.run(op); });
      EXPECT_EQ(error.cause(), Cause::kTimeout);
      EXPECT_EQ(error.ranks(), Ranks{2}) << error.what();
      me.limit = 30s;
    }
    me.synchronize();
    std::vector<float> got(kMuch, -1);
    const std::vector<float> sent = numbers(kMuch, 50 + me.self);
    const OpPtr out = me.start(me.send(sent, right, 9));
    me.run(me.receive(got, left, 9));
    me.finish(out);
    EXPECT_TRUE(are(got, 50 + left));
  });
}

}  // namespace
}  // namespace bluefog::testing
