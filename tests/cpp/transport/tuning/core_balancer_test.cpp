#include "transport/tuning/CoreBalancer.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <vector>

#include "core/Cores.hpp"

namespace bluefog {
namespace {

using std::chrono::microseconds;

// The test's thread may use two cores. It stands for rank 0 of a group that has `size` ranks on
// this host.
class CoreBalancerTest : public ::testing::Test {
 protected:
  static constexpr int kMostRanks = 8;

  void SetUp() override {
    const Cores all = Cores::usable();
    for (int core = 0; core < Cores::kMost && cores_.size() < 2; ++core) {
      if (all.has(core)) {
        cores_.push_back(core);
      }
    }
    if (cores_.size() < 2) {
      GTEST_SKIP() << "needs two cores";
    }
    CPU_ZERO(&both_);
    CPU_SET(static_cast<size_t>(cores_[0]), &both_);
    CPU_SET(static_cast<size_t>(cores_[1]), &both_);
    ::sched_getaffinity(0, sizeof before_, &before_);
    ::sched_setaffinity(0, sizeof both_, &both_);
  }
  void TearDown() override { ::sched_setaffinity(0, sizeof before_, &before_); }

  CoreMap& coreMap() { return *reinterpret_cast<CoreMap*>(memory_); }
  // Looks until the map has the core that this thread runs on, because the kernel may move the
  // thread meanwhile. Returns that core.
  int settle(CoreBalancer& seat) {
    do {
      seat.look(now_ += microseconds(200));
    } while (coreMap().of(0) != Cores::current());
    return coreMap().of(0);
  }
  int other(int core) const { return core == cores_[0] ? cores_[1] : cores_[0]; }
  bool mayUseBoth() const {
    cpu_set_t set;
    return ::sched_getaffinity(0, sizeof set, &set) == 0 && CPU_EQUAL(&set, &both_);
  }

  alignas(64) std::byte memory_[256] = {};
  std::vector<int> cores_;
  cpu_set_t both_;
  cpu_set_t before_;
  CoreBalancer::Time now_{std::chrono::seconds(1)};
};

TEST_F(CoreBalancerTest, LeavesAFullCoreForAnEmptyOne) {
  CoreBalancer seat(coreMap(), 0, 2, 2);
  const int core = settle(seat);
  coreMap().take(1, core);
  seat.look(now_ += microseconds(500));
  EXPECT_EQ(coreMap().of(0), other(core));
  EXPECT_EQ(Cores::current(), other(core));
  EXPECT_TRUE(mayUseBoth());
}

TEST_F(CoreBalancerTest, OneOfThreeOnACoreJoinsTheFourth) {
  CoreBalancer seat(coreMap(), 0, 4, 4);
  const int core = settle(seat);
  coreMap().take(1, core);
  coreMap().take(2, core);
  coreMap().take(3, other(core));
  seat.look(now_ += microseconds(500));
  EXPECT_EQ(coreMap().of(0), other(core));
}

TEST_F(CoreBalancerTest, StaysWhereNothingIsGained) {
  CoreBalancer seat(coreMap(), 0, 3, 3);
  const int core = settle(seat);
  coreMap().take(1, core);
  coreMap().take(2, other(core));
  for (int look = 0; look < 5; ++look) {
    seat.look(now_ += microseconds(500));
    EXPECT_NE(coreMap().of(0), CoreMap::kNone);
  }
  EXPECT_TRUE(coreMap().mayMove(now_)) << "somebody moved";
}

TEST_F(CoreBalancerTest, OneMovesAtATime) {
  CoreBalancer seat(coreMap(), 0, 2, 2);
  const int core = settle(seat);
  coreMap().take(1, core);
  now_ += microseconds(500);
  EXPECT_TRUE(coreMap().mayMove(now_ - microseconds(10)));
  seat.look(now_);
  EXPECT_EQ(coreMap().of(0), core);
  EXPECT_FALSE(coreMap().mayMove(now_));
}

TEST_F(CoreBalancerTest, WithACoreForEachTheKernelKnowsBest) {
  CoreBalancer seat(coreMap(), 0, 1, 1);
  seat.look(now_);
  EXPECT_EQ(coreMap().of(0), CoreMap::kNone);
}

TEST_F(CoreBalancerTest, NonsenseInSharedMemoryIsNotBelieved) {
  CoreBalancer seat(coreMap(), 0, 3, 3);
  settle(seat);
  coreMap().take(1, 1'000'000);
  coreMap().take(2, -7);
  seat.look(now_ += microseconds(500));
  EXPECT_TRUE(mayUseBoth());
}

}  // namespace
}  // namespace bluefog
