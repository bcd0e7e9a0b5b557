#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "support/ranks.hpp"

namespace bluefog::testing {
namespace {

// Returns what a rank contributes at i: a whole number so small that the sum of four fits every
// type.
int given(int rank, size_t i, int round) {
  return static_cast<int>((i % 7 + 3 * static_cast<size_t>(rank) + static_cast<size_t>(round)) %
                          11);
}

int sumAt(int size, size_t i, int round) {
  int sum = 0;
  for (int rank = 0; rank < size; ++rank) {
    sum += given(rank, i, round);
  }
  return sum;
}

// valueAt() repeats itself every kPeriod elements; copying is much faster under a sanitizer.
template <class T>
std::vector<T> periodic(size_t count, const std::function<int(size_t)>& valueAt) {
  constexpr size_t kPeriod = 7;
  std::vector<T> data(count);
  for (size_t i = 0; i < std::min(count, kPeriod); ++i) {
    data[i] = whole<T>(valueAt(i));
  }
  for (size_t filled = kPeriod; filled < count; filled *= 2) {
    std::memcpy(data.data() + filled, data.data(), std::min(filled, count - filled) * sizeof(T));
  }
  return data;
}

template <class T>
std::vector<T> contribution(int rank, size_t count, int round) {
  return periodic<T>(count, [&](size_t i) { return given(rank, i, round); });
}

template <class T>
std::vector<T> sums(int size, size_t count, int round) {
  return periodic<T>(count, [&](size_t i) { return sumAt(size, i, round); });
}

template <class T>
::testing::AssertionResult same(const std::vector<T>& got, const std::vector<T>& expected) {
  if (got.size() == expected.size() &&
      (got.empty() || std::memcmp(got.data(), expected.data(), got.size() * sizeof(T)) == 0)) {
    return ::testing::AssertionSuccess();
  }
  return holds(got, [&](size_t i) { return expected.at(i); });
}

// Returns counts of elements around the bounds at which algorithms and frames change.
template <class T>
std::vector<size_t> counts() {
  std::vector<size_t> all{0, 1, 100, (1024 * 1024 + 4) / sizeof(T)};
  for (size_t bytes : {16 * 1024, 64 * 1024, 128 * 1024}) {
    const size_t bound = bytes / sizeof(T);
    all.insert(all.end(), {bound - 1, bound, bound + 1});
  }
  return all;
}

template <class T>
void tryAllreduce(Rank& me, size_t count, int round) {
  auto data = contribution<T>(me.self, count, round);
  me.run(me.allreduce(data));
  ASSERT_TRUE(same(data, sums<T>(me.size, count, round)));
}

// Reduces as tryAllreduce does, but memory in pieces of uneven size.
void tryAllreduceOfPieces(Rank& me, size_t count) {
  auto data = contribution<int32_t>(me.self, count, 1);
  std::vector<Span> pieces;
  for (size_t at = 0, length = 0; at < count; at += length, length = length * 3 + 1) {
    const size_t taken = std::min(length, count - at);
    pieces.push_back({bytesOf(data) + at * sizeof(int32_t), taken * sizeof(int32_t)});
  }
  const CollectiveOpPtr op =
      me.collective(signatureOf<int32_t>(OpKind::kAllReduce, count, ReduceKind::kSum));
  op->tasks.push_back(
      bluefog::allreduce(me.engine.board(), me.engine.returns(), *op, Spans(pieces)));
  me.run(op);
  ASSERT_TRUE(same(data, sums<int32_t>(me.size, count, 1)));
}

template <class T>
void tryBroadcast(Rank& me, size_t count, int round) {
  const int root = round % me.size;
  auto data = contribution<T>(me.self, count, round);
  me.run(me.broadcast(data, root));
  ASSERT_TRUE(same(data, contribution<T>(root, count, round)));
}

template <class T>
void expectGathered(const Lists<T>& outputs, int round) {
  for (size_t rank = 0; rank < outputs.size(); ++rank) {
    ASSERT_TRUE(
        same(outputs[rank], contribution<T>(static_cast<int>(rank), outputs[rank].size(), round)))
        << "from rank " << rank;
  }
}

template <class T>
void tryAllgather(Rank& me, size_t count, int round) {
  const auto input = contribution<T>(me.self, count, round);
  Lists<T> outputs(static_cast<size_t>(me.size), std::vector<T>(count));
  me.run(me.allgather(input, outputs));
  expectGathered(outputs, round);
}

// Returns a rank's parts for all ranks. The part for rank r has the contribution of round + r.
template <class T>
Lists<T> parts(const Rank& me, const std::vector<size_t>& sizes, int round) {
  Lists<T> all;
  for (int rank = 0; rank < me.size; ++rank) {
    all.push_back(contribution<T>(me.self, sizes[static_cast<size_t>(rank)], round + rank));
  }
  return all;
}

template <class T>
void tryReduceScatter(Rank& me, const std::vector<size_t>& sizes, int round) {
  const Lists<T> inputs = parts<T>(me, sizes, round);
  std::vector<T> output(sizes[static_cast<size_t>(me.self)]);
  me.run(me.reduceScatter(inputs, output));
  ASSERT_TRUE(same(output, sums<T>(me.size, output.size(), round + me.self)));
}

template <class T>
void tryReduce(Rank& me, size_t count, int round) {
  const int root = round % me.size;
  auto data = contribution<T>(me.self, count, round);
  me.run(me.reduce(data, root));
  ASSERT_TRUE(same(data, me.self == root ? sums<T>(me.size, count, round)
                                         : contribution<T>(me.self, count, round)));
}

template <class T>
class CollectivesTest : public ::testing::Test {};
using Types = ::testing::Types<float, double, Half, BFloat, int64_t, uint8_t>;
TYPED_TEST_SUITE(CollectivesTest, Types);

TYPED_TEST(CollectivesTest, GiveTheRightResults) {
  using T = TypeParam;
  for (int n = 1; n <= 4; ++n) {
    runRanks(n, [](Rank& me) {
      int round = 0;
      for (size_t count : counts<T>()) {
        SCOPED_TRACE(std::to_string(me.size) + " ranks, " + std::to_string(count) + " elements");
        tryAllreduce<T>(me, count, ++round);
        tryBroadcast<T>(me, count, ++round);
        tryAllgather<T>(me, count, ++round);
        tryReduceScatter<T>(me, std::vector<size_t>(static_cast<size_t>(me.size), count), ++round);
        tryReduce<T>(me, count, ++round);
        me.synchronize();
        if (::testing::Test::HasFatalFailure()) {
          return;
        }
      }
    });
  }
}

TEST(CollectivesTest, AllreduceOfMemoryInPieces) {
  for (int n = 1; n <= 4; ++n) {
    runRanks(n, [](Rank& me) {
      for (const size_t count : {0u, 1u, 3u, 1000u, 4096u, 4097u, 100'000u, 1'000'000u}) {
        tryAllreduceOfPieces(me, count);
      }
    });
  }
}

// Each host has several ranks, in some layouts not equally many.
TEST(CollectivesTest, AllreduceByHosts) {
  const std::vector<std::pair<int, int>> layouts{{2, 4}, {2, 6}, {3, 6}, {2, 8}, {4, 8}, {2, 5}};
  for (const auto& [hosts, n] : layouts) {
    runRanksOn(hosts, n, [](Rank& me) {
      for (const size_t count : {1u, 5000u, 30'001u, 400'000u, 1'000'003u}) {
        tryAllreduce<float>(me, count, 3);
        tryAllreduce<int16_t>(me, count, 4);
        tryAllreduceOfPieces(me, count);
        std::vector<float> data(count, static_cast<float>(me.self + 1));
        me.run(me.allreduce(data, ReduceKind::kAverage));
        const float mean = static_cast<float>(me.size + 1) / 2;
        ASSERT_TRUE(holds(data, [mean](size_t) { return mean; }));
        std::vector<int32_t> whole(count, me.self + 1);
        me.run(me.allreduce(whole, ReduceKind::kAverage));
        ASSERT_TRUE(holds(whole, [&me](size_t) { return (me.size + 1) / 2; }));
        std::fill(data.begin(), data.end(), 1.0f);
        const CollectiveOpPtr op = me.allreduce(data, ReduceKind::kPremulSum);
        op->factor = me.self;
        me.run(op);
        const auto sum = static_cast<float>(me.size * (me.size - 1) / 2);
        ASSERT_TRUE(holds(data, [sum](size_t) { return sum; }));
      }
    });
  }
}

TEST(CollectivesTest, EveryReductionReachesTheKernels) {
  runRanks(3, [](Rank& me) {
    for (size_t count : {5u, 50'000u}) {
      const auto filled = [&] {
        return std::vector<float>(count, static_cast<float>(me.self + 2));
      };
      std::vector<float> data = filled();
      me.run(me.allreduce(data, ReduceKind::kAverage));
      EXPECT_TRUE(holds(data, [](size_t) { return 3.0f; }));
      me.run(me.allreduce(data = filled(), ReduceKind::kProduct));
      EXPECT_TRUE(holds(data, [](size_t) { return 24.0f; }));
      me.run(me.allreduce(data = filled(), ReduceKind::kMin));
      EXPECT_TRUE(holds(data, [](size_t) { return 2.0f; }));
      me.run(me.allreduce(data = filled(), ReduceKind::kMax));
      EXPECT_TRUE(holds(data, [](size_t) { return 4.0f; }));
      std::vector<int32_t> bits(count, 1 << me.self);
      me.run(me.allreduce(bits, ReduceKind::kBitOr));
      EXPECT_TRUE(holds(bits, [](size_t) { return 7; }));
    }
  });
}

// Each rank's factor is its own, and travels with its data.
TEST(CollectivesTest, PremulSumScalesEachInput) {
  runRanks(3, [](Rank& me) {
    for (size_t count : {5u, 50'000u}) {
      const auto run = [&me](const CollectiveOpPtr& op) {
        op->factor = me.self + 0.5;
        me.run(op);
      };
      std::vector<double> data(count, 2);
      run(me.allreduce(data, ReduceKind::kPremulSum));
      EXPECT_TRUE(holds(data, [](size_t) { return 2 * (0.5 + 1.5 + 2.5); }));
      const Lists<float> inputs(3, std::vector<float>(count, 4));
      std::vector<float> output(count);
      run(me.reduceScatter(inputs, output, ReduceKind::kPremulSum));
      EXPECT_TRUE(holds(output, [](size_t) { return 18.0f; }));
      // 2048 + 1 + 1 is 2048 in a half type, unless it is rounded once.
      std::vector<Half> halves(count, whole<Half>(me.self == 0 ? 64 : 1));
      const CollectiveOpPtr op = me.allreduce(halves, ReduceKind::kPremulSum);
      op->factor = me.self == 0 ? 32 : 1;
      me.run(op);
      EXPECT_TRUE(holds(halves, [](size_t) { return fromDouble<Half>(2050); }));
    }
  });
}

TEST(CollectivesTest, RanksMayHaveNothing) {
  runRanks(4, [](Rank& me) {
    // The sizes are more than a frame, a frame, one element, and none.
    for (const std::vector<size_t>& sizes :
         Lists<size_t>{{0, 70'000, 1, 100}, {70'000, 0, 0, 0}, {0, 0, 0, 1}, {0, 0, 0, 0}}) {
      tryReduceScatter<float>(me, sizes, 1);
      const auto input = contribution<float>(me.self, sizes[static_cast<size_t>(me.self)], 2);
      Lists<float> outputs;
      for (size_t size : sizes) {
        outputs.emplace_back(size);
      }
      me.run(me.allgather(input, outputs));
      expectGathered(outputs, 2);
    }
  });
}

TEST(CollectivesTest, OutputsMayBeInputs) {
  runRanks(3, [](Rank& me) {
    for (size_t count : {10u, 100'000u}) {
      Lists<float> gathered(3, std::vector<float>(count));
      std::vector<float>& own = gathered[static_cast<size_t>(me.self)];
      own = contribution<float>(me.self, count, 1);
      me.run(me.allgather(own, gathered));
      expectGathered(gathered, 1);

      Lists<float> inputs = parts<float>(me, {count, count, count}, 5);
      std::vector<float>& part = inputs[static_cast<size_t>(me.self)];
      me.run(me.reduceScatter(inputs, part));
      EXPECT_TRUE(same(part, sums<float>(3, count, 5 + me.self)));
    }
  });
}

// An InFlight owns the memory of one operation, so that all operations can be under way.
struct InFlight {
  OpPtr op;
  std::vector<float> data;
  Lists<float> lists;
  std::function<void()> check;
};

void startOne(Rank& me, InFlight& flight, int round) {
  const size_t count =
      std::vector<size_t>{3, 5'000, 20'000, 70'000}[static_cast<size_t>(round * round / 3 % 4)];
  flight.data = contribution<float>(me.self, count, round);
  const int root = round % me.size;
  switch (round % 4) {
    case 0:
      flight.op = me.start(me.allreduce(flight.data));
      flight.check = [&me, &flight, round] {
        EXPECT_TRUE(same(flight.data, sums<float>(me.size, flight.data.size(), round)))
            << "round " << round;
      };
      break;
    case 1:
      flight.op = me.start(me.broadcast(flight.data, root));
      flight.check = [&flight, round, root] {
        EXPECT_TRUE(same(flight.data, contribution<float>(root, flight.data.size(), round)))
            << "round " << round;
      };
      break;
    case 2:
      flight.lists.assign(static_cast<size_t>(me.size), std::vector<float>(count));
      flight.op = me.start(me.allgather(flight.data, flight.lists));
      flight.check = [&flight, round] { expectGathered(flight.lists, round); };
      break;
    default:
      flight.lists =
          parts<float>(me, std::vector<size_t>(static_cast<size_t>(me.size), count), round);
      flight.op = me.start(me.reduceScatter(flight.lists, flight.data));
      flight.check = [&me, &flight, round] {
        EXPECT_TRUE(same(flight.data, sums<float>(me.size, flight.data.size(), round + me.self)))
            << "round " << round;
      };
  }
}

TEST(CollectivesTest, ManyMayBeUnderWay) {
  for (int n : {2, 4}) {
    runRanks(n, [](Rank& me) {
      std::list<InFlight> flights(100);
      int round = 0;
      for (InFlight& flight : flights) {
        startOne(me, flight, ++round);
      }
      for (InFlight& flight : flights) {
        me.finish(flight.op);
        flight.check();
      }
    });
  }
}

TEST(CollectivesTest, ResultsMayBeTooLargeForTheCaches) {
  runRanks(2, [](Rank& me) {
    constexpr size_t kCount = (17u << 20) / sizeof(float) + 3;
    tryAllreduce<float>(me, kCount, 1);
    tryBroadcast<float>(me, kCount, 2);
    tryAllgather<float>(me, kCount, 3);
    tryReduceScatter<float>(me, {kCount, kCount}, 4);
  });
}

TEST(CollectivesTest, ManySmallOnesInARow) {
  runRanks(3, [](Rank& me) {
    for (int round = 0; round < 1000; ++round) {
      tryAllreduce<float>(me, 16, round % 50);
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
