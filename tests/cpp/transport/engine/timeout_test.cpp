#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "support/calls.hpp"
#include "support/ranks.hpp"

namespace bluefog::testing {
namespace {

struct Absence {
  std::string name;
  std::function<void(Rank&)> call;
};

std::vector<Absence> absences() {
  return {
      {"allreduce", [](Rank& me) { callAllreduce<float>(me, 10); }},
      {"large allreduce", [](Rank& me) { callAllreduce<float>(me, 400'000); }},
      {"broadcast to it", [](Rank& me) { callBroadcast(me, 10, 0); }},
      {"large broadcast to it", [](Rank& me) { callBroadcast(me, 600'000, 0); }},
      {"allgather", [](Rank& me) { callAllgather(me, 100'000); }},
      {"reduce_scatter", [](Rank& me) { callReduceScatter(me, {100'000, 100'000}); }},
      {"reduce to it", [](Rank& me) { callReduce(me, 10, me.size - 1); }},
      {"large reduce", [](Rank& me) { callReduce(me, 600'000, 0); }},
      {"alltoall", [](Rank& me) { callExchange(me, 10); }},
      {"large alltoall", [](Rank& me) { callExchange(me, 600'000); }},
      {"barrier", [](Rank& me) { me.synchronize(); }},
  };
}

// All ranks but the last one call. The last one comes when the others have failed.
void miss(const Absence& absence, int n) {
  const int absent = n - 1;
  Errors errors(n);
  std::atomic<int> failed{0};
  runRanks(n, [&](Rank& me) {
    me.limit = 300ms;
    if (me.self == absent) {
      ASSERT_TRUE(eventually([&] { return failed == n - 1; }));
    }
    errors.set(me.self, failureOf([&] { absence.call(me); }));
    ++failed;
  });
  ASSERT_TRUE(errors.all());
  for (int rank = 0; rank < n; ++rank) {
    EXPECT_EQ(errors[rank].cause(), Cause::kTimeout);
    EXPECT_EQ(errors[rank].ranks(), Ranks{absent}) << errors[rank].what();
    EXPECT_EQ(story(errors[rank]), "timeout after 0.3 s; nothing from rank " +
                                       std::to_string(absent) +
                                       (rank == absent ? "; this rank came too late" : ""));
  }
}

TEST(DeadlineTest, SaysSoWhereAllHaveCome) {
  const MessageOp op({.kind = OpKind::kNeighborAllReduce},
                     Deadline::in(std::chrono::milliseconds(300)));
  EXPECT_EQ(timedOut(Membership(), op, {}).reason,
            "timeout after 0.3 s; by now all that it waits for have come, but it has not ended");
}

TEST(DeadlineTest, NamesWhoDidNotCome) {
  for (int n : {2, 3, 4}) {
    for (const Absence& absence : absences()) {
      SCOPED_TRACE(std::to_string(n) + " ranks: " + absence.name);
      miss(absence, n);
    }
  }
}

TEST(DeadlineTest, IsKeptInTime) {
  runRanksUnheard(2, [](Rank& me) {
    me.limit = 200ms;
    if (me.self == 0) {
      const auto start = Clock::now();
      failureOf([&] { me.synchronize(); });
      EXPECT_GE(Clock::now() - start, 200ms);
      EXPECT_LT(Clock::now() - start, 2s);
    }
  });
}

TEST(DeadlineTest, OfALaterOneNamesWhoHoldsUpTheFirst) {
  runRanks(2, [](Rank& me) {
    if (me.self == 0) {
      std::vector<float> data(10);
      const OpPtr first = me.start(me.allreduce(data));
      me.limit = 100ms;
      const OpPtr second = me.start(me.barrier());
      EXPECT_EQ(failureOf([&] { me.finish(second); }).ranks(), Ranks{1});
      EXPECT_EQ(failureOf([&] { me.finish(first); }).ranks(), Ranks{1});
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
