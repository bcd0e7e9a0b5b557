#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "support/ranks.hpp"

namespace bluefog::testing {
namespace {

// ---- ranks that do not agree

struct Disagreement {
  std::string name;
  std::function<void(Rank&)> most;
  std::function<void(Rank&)> odd;
  bool told_apart = true;  // the two calls read differently
};

template <class T>
void callAllreduce(Rank& me, size_t count, ReduceKind kind = ReduceKind::kSum) {
  std::vector<T> data(count);
  me.run(me.allreduce(data, kind));
}

void callBroadcast(Rank& me, size_t count, int root) {
  std::vector<float> data(count);
  me.run(me.broadcast(data, root));
}

void callAllgather(Rank& me, size_t count) {
  const std::vector<float> data(count);
  Lists<float> outputs(static_cast<size_t>(me.size), std::vector<float>(count));
  me.run(me.allgather(data, outputs));
}

void callReduceScatter(Rank& me, const std::vector<size_t>& first) {
  Lists<float> inputs(static_cast<size_t>(me.size), std::vector<float>(5));
  for (size_t i = 0; i < first.size(); ++i) {
    inputs[i].resize(first[i]);
  }
  std::vector<float> output(inputs[static_cast<size_t>(me.self)].size());
  me.run(me.reduceScatter(inputs, output));
}

void callReduce(Rank& me, size_t count, int root) {
  std::vector<float> data(count);
  me.run(me.reduce(data, root));
}

void callExchange(Rank& me, size_t count) {
  const Lists<float> inputs(static_cast<size_t>(me.size), std::vector<float>(count));
  Lists<float> outputs = inputs;
  me.run(me.exchange(inputs, outputs));
}

std::vector<Disagreement> disagreements() {
  return {
      {"count", [](Rank& me) { callAllreduce<float>(me, 10); },
       [](Rank& me) { callAllreduce<float>(me, 11); }},
      {"count, large", [](Rank& me) { callAllreduce<float>(me, 300'000); },
       [](Rank& me) { callAllreduce<float>(me, 400'000); }},
      {"one small, one large", [](Rank& me) { callAllreduce<float>(me, 10); },
       [](Rank& me) { callAllreduce<float>(me, 400'000); }},
      {"element type", [](Rank& me) { callAllreduce<float>(me, 10); },
       [](Rank& me) { callAllreduce<int32_t>(me, 10); }},
      {"reduction", [](Rank& me) { callAllreduce<float>(me, 10); },
       [](Rank& me) { callAllreduce<float>(me, 10, ReduceKind::kMax); }},
      {"root", [](Rank& me) { callBroadcast(me, 10, 0); },
       [](Rank& me) { callBroadcast(me, 10, 1); }},
      {"root, large", [](Rank& me) { callBroadcast(me, 600'000, 0); },
       [](Rank& me) { callBroadcast(me, 600'000, 1); }},
      {"a barrier", [](Rank& me) { callAllreduce<float>(me, 100'000); },
       [](Rank& me) { me.synchronize(); }},
      {"an allgather", [](Rank& me) { callBroadcast(me, 2'000'000, 0); },
       [](Rank& me) { callAllgather(me, 1'000'000); }},
      {"a reduce_scatter", [](Rank& me) { callAllgather(me, 500'000); },
       [](Rank& me) { callReduceScatter(me, {}); }},
      {"an alltoall", [](Rank& me) { callExchange(me, 600'000); },
       [](Rank& me) { callAllgather(me, 500'000); }},
      {"a root to reduce to", [](Rank& me) { callReduce(me, 600'000, 0); },
       [](Rank& me) { callReduce(me, 600'000, 1); }},
      {"how it is split", [](Rank& me) { callReduceScatter(me, {7, 8}); },
       [](Rank& me) { callReduceScatter(me, {8, 7}); }, /*told_apart=*/false},
  };
}

// Returns what each rank fails with.
void disagree(const Disagreement& disagreement, int n, int odd) {
  Errors errors(n);
  Errors later(n);
  runRanks(n, [&](Rank& me) {
    me.limit = 5s;
    const auto& call = me.self == odd ? disagreement.odd : disagreement.most;
    errors.set(me.self, failureOf([&] { call(me); }));
    later.set(me.self, failureOf([&] { me.synchronize(); }));
  });
  ASSERT_TRUE(errors.all() && later.all());
  for (int rank = 0; rank < n; ++rank) {
    const Error& error = errors[rank];
    EXPECT_EQ(error.cause(), Cause::kMismatch) << error.what();
    EXPECT_EQ(story(error), story(errors[0]));
    EXPECT_EQ(error.ranks(), errors[0].ranks());
    EXPECT_EQ(story(later[rank]),
              "collective #1 of this group has failed, and with it all later "
              "ones; make a new group (" +
                  story(errors[0]) + ")");
    EXPECT_EQ(std::string(error.what()).find("[bluefog] rank " + std::to_string(rank) + "/"), 0u);
  }
  const Ranks& named = errors[0].ranks();
  EXPECT_EQ(named.size(), 2u);
  EXPECT_EQ(std::count(named.begin(), named.end(), odd), 1) << errors[0].what();
  for (int rank : named) {
    EXPECT_NE(
        story(errors[0]).find(disagreement.told_apart ? "rank " + std::to_string(rank) + " called "
                                                      : rankList(named) + " called "),
        std::string::npos)
        << story(errors[0]);
  }
}

TEST(MismatchTest, IsToldByEveryRank) {
  for (int n = 2; n <= 4; ++n) {
    for (const Disagreement& disagreement : disagreements()) {
      SCOPED_TRACE(std::to_string(n) + " ranks: " + disagreement.name);
      disagree(disagreement, n, n - 1);
    }
  }
}

TEST(MismatchTest, IsToldWhoeverIsOdd) {
  for (int odd = 0; odd < 3; ++odd) {
    SCOPED_TRACE(odd);
    disagree(disagreements().front(), 3, odd);
  }
}

// ---- ranks that do not come

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

// All but the last rank call; it comes when the others have failed.
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
  const Op op(Op::Kind::kMessage, {.kind = OpKind::kNeighborAllReduce},
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
