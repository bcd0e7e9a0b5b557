#include "bootstrap/Roster.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <list>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/stores.hpp"

namespace bluefog::testing {
namespace {

using Ranks = std::vector<int>;

Ranks upTo(int n) {
  Ranks ranks(static_cast<size_t>(n));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// A RosterTest drives the processes of a job step by step.
class RosterTest : public ::testing::Test {
 protected:
  Roster process(int rank, int size = 3) {
    return {*store_, describeThisRank("", upTo(size)), rank};
  }
  static void advance(std::list<Roster*> processes, int times = 3) {
    for (int i = 0; i < times; ++i) {
      for (Roster* process : processes) {
        process->advance();
      }
    }
  }
  // Returns processes of ranks 0 and 1, where rank 0 has listed rank 1.
  std::pair<Roster, Roster> zeroAndOneListed() {
    Roster zero = process(0);
    Roster one = process(1);
    advance({&zero, &one});
    EXPECT_TRUE(one.isListed());
    return {std::move(zero), std::move(one)};
  }
  static void expectGroup(const std::vector<Roster*>& processes) {
    for (const Roster* process : processes) {
      ASSERT_TRUE(process->isComplete());
      for (size_t rank = 0; rank < processes.size(); ++rank) {
        EXPECT_EQ(process->record(static_cast<int>(rank))->id, processes[rank]->me().id);
      }
    }
  }

  std::optional<MemoryStore> store_{std::in_place};
};

TEST_F(RosterTest, AllAgreeOnWhoIsThere) {
  Roster zero = process(0);
  Roster one = process(1);
  Roster two = process(2);
  advance({&two, &one});
  EXPECT_FALSE(one.isListed());
  advance({&zero, &one});
  EXPECT_TRUE(one.isListed());
  EXPECT_FALSE(one.isComplete());
  EXPECT_FALSE(two.isListed());
  advance({&zero, &one, &two});
  expectGroup({&zero, &one, &two});
}

TEST_F(RosterTest, SaysWhoIsMissing) {
  Roster zero = process(0, 4);
  Roster one = process(1, 4);
  Roster two = process(2, 4);
  EXPECT_EQ(one.missing(), (Ranks{0, 2, 3}));
  advance({&two, &one});
  EXPECT_EQ(one.missing(), (Ranks{0, 3}));
  advance({&zero, &one});
  EXPECT_EQ(one.missing(), (Ranks{2, 3}));  // rank 2 has not answered
  EXPECT_EQ(zero.missing(), (Ranks{2, 3}));
  advance({&two, &zero, &one});
  EXPECT_EQ(one.missing(), Ranks{3});
}

TEST_F(RosterTest, EarlierProcessesCountForNothing) {
  Roster old_zero = process(0);
  Roster old_one = process(1);
  Roster old_two = process(2);
  advance({&old_zero, &old_one, &old_two});
  Roster one = process(1);
  advance({&one});
  EXPECT_EQ(one.rankZero(), old_zero.me().id);  // the process of rank 0 that it can see
  EXPECT_FALSE(one.isListed());
  Roster zero = process(0);
  advance({&zero, &one});
  EXPECT_TRUE(one.isListed());
  EXPECT_EQ(zero.missing(), Ranks{2});
  Roster two = process(2);
  advance({&two, &zero, &one, &two});
  expectGroup({&zero, &one, &two});
}

TEST_F(RosterTest, OneThatIsReplacedBeforeAllAreThereIsForgotten) {
  auto [zero, old_one] = zeroAndOneListed();
  Roster one = process(1);
  Roster two = process(2);
  advance({&one});
  zero.doubt();
  advance({&zero, &two, &one, &zero, &two});
  expectGroup({&zero, &one, &two});
  ASSERT_TRUE(old_one.replacement().has_value());
  EXPECT_EQ(old_one.replacement()->id, one.me().id);
  EXPECT_FALSE(one.replacement().has_value());
}

TEST_F(RosterTest, OneThatIsReplacedWritesNothingMore) {
  Roster old_one = process(1);
  advance({&old_one});
  Roster one = process(1);
  advance({&one});
  Roster zero = process(0);
  advance({&zero, &old_one});
  EXPECT_FALSE(one.replacement().has_value());
}

TEST_F(RosterTest, AnotherVersionsRecordIsNone) {
  store_->set("rank/0", "hello");
  store_->set("rank/2", "hello");
  Roster one = process(1);
  advance({&one});
  EXPECT_EQ(one.missing(), (Ranks{0, 2}));
  Roster zero = process(0);
  Roster two = process(2);
  advance({&zero, &one, &two});
  expectGroup({&zero, &one, &two});
}

TEST_F(RosterTest, TheLastAnswerCompletesNoListWithOneThatWasReplaced) {
  auto [zero, old_one] = zeroAndOneListed();
  Roster one = process(1);
  Roster two = process(2);
  two.advance();
  EXPECT_TRUE(one.advance());  // It has answered, and rank 0 has not read the answer.
  zero.advance();
  advance({&zero, &one, &two});
  expectGroup({&zero, &one, &two});
}

TEST_F(RosterTest, OneThatIsReplacedWithoutAnAnswerLeavesTheList) {
  auto [zero, old_one] = zeroAndOneListed();
  RankRecord other = describeThisRank("", upTo(3));
  store_->set("rank/1", other.encode());
  zero.doubt();
  EXPECT_TRUE(zero.advance());
  EXPECT_EQ(zero.missing(), (Ranks{1, 2}));
}

TEST_F(RosterTest, KnowsOfTheProcessThatHasItsPlace) {
  Roster zero = process(0, 2);
  RankRecord another = describeThisRank("", upTo(2));
  another.pid = 1;
  Roster one(*store_, another, 1);
  advance({&zero, &one});
  expectGroup({&zero, &one});
  Roster late = process(1, 2);
  advance({&late});
  EXPECT_FALSE(late.isListed());
  ASSERT_TRUE(late.rival().has_value());
  EXPECT_EQ(late.rival()->id, one.me().id);
  EXPECT_TRUE(late.lists(*late.rival(), 1));
  EXPECT_FALSE(late.lists(late.me(), 1));
}

// Some lives of the job came before, and some of their processes go on for a while. The processes
// that come last meet, and no other process believes that it is in their group.
TEST_F(RosterTest, MeetsAfterAnyNumberOfPartialLives) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
    const int size = 2 + static_cast<int>(pick(4));
    store_.emplace();
    std::vector<std::unique_ptr<Roster>> living;
    const auto start = [&](int rank) {
      living.push_back(std::make_unique<Roster>(process(rank, size)));
      living.back()->advance();
      return living.back().get();
    };
    for (size_t events = pick(60); events > 0; --events) {
      if (living.empty() || pick(3) == 0) {
        start(static_cast<int>(pick(static_cast<size_t>(size))));
      } else if (pick(4) == 0) {
        living.erase(living.begin() + static_cast<ptrdiff_t>(pick(living.size())));
      } else {
        living[pick(living.size())]->advance();
      }
    }
    std::vector<Roster*> last(static_cast<size_t>(size));
    Ranks order = upTo(size);
    std::shuffle(order.begin(), order.end(), random);
    for (const int rank : order) {
      last[static_cast<size_t>(rank)] = start(rank);
      living[pick(living.size())]->advance();
    }
    const auto all_have_met = [&] {
      return std::all_of(last.begin(), last.end(), [](const Roster* r) { return r->isComplete(); });
    };
    for (int tries = 0; tries < 1000 && !all_have_met(); ++tries) {
      Roster& process = *living[pick(living.size())];
      if (pick(4) == 0) {
        process.doubt();
      }
      process.advance();
    }
    expectGroup(last);
  }
}

}  // namespace
}  // namespace bluefog::testing
