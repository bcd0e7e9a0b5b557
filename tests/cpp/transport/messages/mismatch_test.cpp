#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "support/calls.hpp"
#include "support/ranks.hpp"

namespace bluefog::testing {
namespace {

struct Disagreement {
  std::string name;
  std::function<void(Rank&)> most;
  std::function<void(Rank&)> odd;
  bool told_apart = true;  // the error texts of the two calls differ
};

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

// Has the rank `odd` of `n` ranks call something else than the others. Expects that all ranks
// report the same mismatch.
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
    EXPECT_EQ(
        story(later[rank]),
        "collective #1 of this group failed, so all later ones fail, too; make a new group (" +
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

}  // namespace
}  // namespace bluefog::testing
