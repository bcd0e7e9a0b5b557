#include "window/Slot.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "core/Fd.hpp"

namespace bluefog::testing {
namespace {

constexpr size_t kCount = 3000;
constexpr size_t kBytes = kCount * sizeof(double);
using Values = std::vector<double>;

Mapping sharedMemory(size_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(data, MAP_FAILED);
  return {data, bytes};
}

class SlotTest : public ::testing::Test {
 protected:
  static SlotUpdate times(double weight, const Values& values, double p = 0) {
    return {Dtype::kFloat64, kCount, values.data(), weight, p};
  }
  static Values all(double value) { return Values(kCount, value); }
  // Returns the value of all elements, or NaN if they differ.
  static double valueOf(const Slot::Held& held) {
    if (held.data == nullptr) {
      return 0;
    }
    Values values(kCount);
    std::memcpy(values.data(), held.data, kBytes);
    const bool is_whole = std::all_of(values.begin(), values.end(),
                                      [&](double value) { return value == values.front(); });
    return is_whole ? values.front() : std::nan("");
  }

  Mapping memory_ = sharedMemory(Slot::bytesFor(kBytes));
  Slot slot_{memory_.data(), kBytes};
};

TEST_F(SlotTest, IsEmptyAtFirst) {
  const Slot::Held held = slot_.hold(Slot::Then::kIsSeen);
  EXPECT_EQ(held.data, nullptr);
  EXPECT_EQ(held.p, 0);
  EXPECT_EQ(held.version, 0U);
}

TEST_F(SlotTest, APutReplaces) {
  slot_.put(times(2, all(3), 0.5));
  slot_.put(times(1, all(4), 0.25));
  const Slot::Held held = slot_.hold(Slot::Then::kIsSeen);
  EXPECT_EQ(valueOf(held), 4);
  EXPECT_EQ(held.p, 0.25);
  EXPECT_EQ(held.version, 2U);
  EXPECT_EQ(valueOf(slot_.hold(Slot::Then::kIsSeen)), 4);
  EXPECT_EQ(slot_.version(), 0U);
  EXPECT_EQ(slot_.changesInAll(), 2U);
}

TEST_F(SlotTest, AnAccumulationAdds) {
  slot_.accumulate(times(2, all(3), 0.5));
  slot_.accumulate(times(1, all(4), 0.25));
  EXPECT_EQ(slot_.version(), 2U);
  const Slot::Held held = slot_.hold(Slot::Then::kIsEmpty);
  EXPECT_EQ(valueOf(held), 10);
  EXPECT_EQ(held.p, 0.75);
  EXPECT_EQ(valueOf(slot_.hold(Slot::Then::kIsSeen)), 0);
  slot_.accumulate(times(1, all(5)));
  EXPECT_EQ(valueOf(slot_.hold(Slot::Then::kIsSeen)), 5);
}

TEST_F(SlotTest, WhatIsHeldStays) {
  slot_.put(times(1, all(1)));
  const Slot::Held held = slot_.hold(Slot::Then::kIsEmpty);
  for (int i = 0; i < 10; ++i) {
    slot_.put(times(1, all(2)));
    slot_.accumulate(times(1, all(2)));
  }
  EXPECT_EQ(valueOf(held), 1);
  EXPECT_EQ(valueOf(slot_.hold(Slot::Then::kIsSeen)), 4);
}

TEST_F(SlotTest, WhatItsOwnerFillsIsAddedTo) {
  slot_.put(times(1, all(1)));
  slot_.fill(times(2, all(7), 1));
  slot_.fill(times(3, all(7), 2));
  EXPECT_EQ(slot_.version(), 3U);
  slot_.accumulate(times(1, all(1), 0.5));
  const Slot::Held held = slot_.hold(Slot::Then::kIsSeen);
  EXPECT_EQ(valueOf(held), 22);
  EXPECT_EQ(held.p, 2.5);
}

// Every sum and every buffer is whole, whatever the other thread does meanwhile.
TEST_F(SlotTest, NothingIsLostOrTornBetweenThreads) {
  constexpr int kRounds = 20'000;
  std::thread writer([this] {
    for (int i = 1; i <= kRounds; ++i) {
      slot_.accumulate(times(1, all(i), i));
    }
  });
  double sum = 0;
  double p = 0;
  const double expected = kRounds * (kRounds + 1.0) / 2;
  while (sum < expected) {
    const Slot::Held held = slot_.hold(Slot::Then::kIsEmpty);
    const double value = valueOf(held);
    ASSERT_FALSE(std::isnan(value));
    ASSERT_EQ(value, held.p);
    sum += value;
    p += held.p;
  }
  writer.join();
  EXPECT_EQ(sum, expected);
  EXPECT_EQ(p, expected);
  EXPECT_EQ(slot_.changesInAll(), uint64_t{kRounds});
}

// The values that are put only grow. The owner itself fills the slot now and then.
TEST_F(SlotTest, PutsAreSeenInOrderBetweenThreads) {
  constexpr int kRounds = 20'000;
  std::atomic<bool> ended{false};
  std::thread writer([&] {
    for (int i = 1; i <= kRounds; ++i) {
      slot_.put(times(1, all(i)));
    }
    ended = true;
  });
  double last = 0;
  while (!ended) {
    const double value = valueOf(slot_.hold(Slot::Then::kIsSeen));
    ASSERT_FALSE(std::isnan(value));
    if (value >= 0) {
      ASSERT_GE(value, last);
      last = value;
    }
    slot_.fill(times(-1, all(1)));
  }
  writer.join();
}

// The process that accumulates is killed at any instant. What it has not finished is not in the
// slot.
TEST_F(SlotTest, AKilledWriterLeavesItWhole) {
  const Mapping shared = sharedMemory(4096);
  auto& finished = *reinterpret_cast<std::atomic<uint64_t>*>(shared.data());
  std::mt19937 random(7);
  double collected = 0;
  for (int round = 0; round < 100; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      while (true) {
        slot_.accumulate(times(1, all(1)));
        finished.fetch_add(1);
      }
    }
    ::usleep(random() % 3000);
    for (int i = 0; i < 3; ++i) {
      const double value = valueOf(slot_.hold(Slot::Then::kIsEmpty));
      ASSERT_FALSE(std::isnan(value));
      collected += value;
    }
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    collected += valueOf(slot_.hold(Slot::Then::kIsEmpty));
    // Each process may have made one more change that it was killed before counting.
    ASSERT_GE(collected, static_cast<double>(finished.load()));
    ASSERT_LE(collected, static_cast<double>(finished.load() + round + 1));
  }
  EXPECT_GT(collected, 100);
}

TEST_F(SlotTest, AwaitsAChangeNoLongerThanAsked) {
  using namespace std::chrono_literals;
  const Slot::Clock::time_point begun = Slot::Clock::now();
  slot_.awaitChange(begun + 20ms);
  EXPECT_GE(Slot::Clock::now(), begun + 20ms);
}

TEST_F(SlotTest, DoesNotAwaitAChangeThatIsThere) {
  slot_.put(times(1, all(1)));
  slot_.awaitChange(Slot::Clock::time_point::max());
  EXPECT_EQ(slot_.version(), 1U);
}

// There are many waits, and each of them ends by the change alone, because its limit is an hour
// away.
TEST_F(SlotTest, AChangeEndsAWaitAtOnce) {
  constexpr int kRounds = 5'000;
  std::atomic<int> seen{0};
  std::thread writer([&] {
    for (int round = 0; round < kRounds; ++round) {
      while (seen < round) {
        std::this_thread::yield();
      }
      round % 2 == 0 ? slot_.put(times(1, all(1))) : slot_.accumulate(times(1, all(1)));
    }
  });
  for (; seen < kRounds; ++seen) {
    slot_.awaitChange(Slot::Clock::now() + std::chrono::hours(1));
    ASSERT_EQ(slot_.hold(Slot::Then::kIsEmpty).version, 1U);
  }
  writer.join();
}

}  // namespace
}  // namespace bluefog::testing
