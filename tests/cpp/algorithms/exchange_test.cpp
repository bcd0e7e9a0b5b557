#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/ranks.hpp"

namespace bluefog::testing {
namespace {

using Sizes = Lists<size_t>;  // elements that rank i sends to rank j

// Returns data that tells who sent it, to whom, and where in the block an element is.
std::vector<int32_t> block(int from, int to, size_t count) {
  std::vector<int32_t> data(count);
  for (size_t i = 0; i < count; ++i) {
    data[i] = static_cast<int32_t>(i * 64) + from * 8 + to;
  }
  return data;
}

void tryExchange(Rank& me, const Sizes& sizes) {
  const auto self = static_cast<size_t>(me.self);
  Lists<int32_t> inputs;
  Lists<int32_t> outputs;
  for (int peer = 0; peer < me.size; ++peer) {
    const auto at = static_cast<size_t>(peer);
    inputs.push_back(block(me.self, peer, sizes[self][at]));
    outputs.emplace_back(sizes[at][self]);
  }
  me.run(me.exchange(inputs, outputs));
  for (int peer = 0; peer < me.size; ++peer) {
    const auto at = static_cast<size_t>(peer);
    ASSERT_EQ(outputs[at], block(peer, me.self, sizes[at][self])) << "from rank " << peer;
  }
}

TEST(ExchangeTest, GivesEachRankItsParcel) {
  for (int n = 1; n <= 4; ++n) {
    runRanks(n, [n](Rank& me) {
      const auto ranks = static_cast<size_t>(n);
      // The counts lie around what the first frame, with its table, holds for 1, 2 and 3 others.
      for (const size_t count :
           {0u, 1u, 1000u, 10'912u, 10'913u, 16'368u, 16'369u, 32'752u, 32'753u, 100'000u}) {
        tryExchange(me, Sizes(ranks, std::vector<size_t>(ranks, count)));
      }
    });
  }
}

TEST(ExchangeTest, SizesMayDiffer) {
  runRanks(3, [](Rank& me) {
    tryExchange(me, {{0, 1, 70'000}, {5, 0, 0}, {100'000, 40'000, 3}});
    tryExchange(me, {{0, 0, 0}, {0, 0, 0}, {0, 300'000, 0}});
    // gather sends to one rank like this, and scatter from one rank.
    tryExchange(me, {{0, 50'000, 0}, {0, 7, 0}, {0, 90'000, 0}});
    tryExchange(me, {{1, 2, 80'000}, {0, 0, 0}, {0, 0, 0}});
  });
}

// Pieces grow when another block ends: at the end of a piece, before it, or in the last frame.
TEST(ExchangeTest, ParcelsEndOneAfterTheOther) {
  constexpr size_t kFirst = 10'912;  // elements of a piece in the first frame, which has three
  constexpr size_t kPiece = 10'912;  // elements of a piece in the second frame
  runRanks(4, [](Rank& me) {
    for (const size_t more : {0u, 1u, 30'000u, 200'000u}) {
      tryExchange(me, {{3, kFirst, kFirst + kPiece, kFirst + kPiece + more},
                       {kFirst + kPiece - 1, 0, kFirst + kPiece + 1, more},
                       {more, more + 1, 5, kFirst},
                       {more, 0, 0, 7}});
    }
  });
}

TEST(ExchangeTest, AmongManyRanks) {
  constexpr size_t kRanks = 20;
  runRanks(static_cast<int>(kRanks), [](Rank& me) {
    tryExchange(me, Sizes(kRanks, std::vector<size_t>(kRanks, 5000)));
    Sizes uneven(kRanks, std::vector<size_t>(kRanks));
    for (size_t from = 0; from < kRanks; ++from) {
      for (size_t to = 0; to < kRanks; ++to) {
        uneven[from][to] = (from * to * 97) % 9000;
      }
    }
    tryExchange(me, uneven);
  });
}

TEST(ExchangeTest, ManyInARow) {
  runRanks(4, [](Rank& me) {
    for (size_t round = 0; round < 300; ++round) {
      tryExchange(me, Sizes(4, {round % 7, round, round * 100, 2}));
    }
  });
}

TEST(ExchangeTest, TheOwnParcelMayLieAtItsPlace) {
  runRanks(2, [](Rank& me) {
    Lists<int32_t> data{block(me.self, 0, 40'000), block(me.self, 1, 40'000)};
    me.run(me.exchange(data, data));
    const int peer = 1 - me.self;
    EXPECT_EQ(data[static_cast<size_t>(me.self)], block(me.self, me.self, 40'000));
    EXPECT_EQ(data[static_cast<size_t>(peer)].size(), 40'000u);
  });
}

TEST(ExchangeTest, OtherSizesThanExpectedAreToldByAll) {
  for (const size_t sent : {8u, 200'000u}) {
    Errors errors(3);
    runRanks(3, [&](Rank& me) {
      Lists<int32_t> inputs(3, std::vector<int32_t>(9));
      Lists<int32_t> outputs = inputs;
      if (me.self == 2) {
        inputs[1].resize(sent);
      }
      errors.set(me.self, failureOf([&] {
                   me.run(me.exchange(inputs, outputs));
                   me.synchronize();
                 }));
    });
    ASSERT_TRUE(errors.all());
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(errors[rank].cause(), Cause::kMismatch);
      EXPECT_EQ(errors[rank].ranks(), (Ranks{1, 2}));
      const std::string told = "ranks do not agree on the sizes: rank 2 sends " +
                               std::to_string(sent) + " elements to rank 1, which expects 9";
      const std::string later =
          "collective #1 of this group failed, so all later ones fail, too; make a new group (" +
          told + ")";
      // The rank that the sizes do not concern may have done its part. It then hears in its next
      // call.
      const bool hears_later = rank == 0 && story(errors[rank]) == later;
      EXPECT_EQ(story(errors[rank]), hears_later ? later : told);
    }
  }
}

}  // namespace
}  // namespace bluefog::testing
