#include "transport/tuning/StorePolicy.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "transport/memory/Ring.hpp"

namespace bluefog {
namespace {

constexpr size_t kFrame = 128 * 1024;
constexpr int kPeriod = 256;

struct Sent {
  Stores stores;
  StoreSample written;
};

std::vector<Sent> send(StorePolicy& policy, int frames, size_t bytes = kFrame) {
  const std::vector<std::byte> from(bytes);
  std::vector<std::byte> to(bytes);
  std::vector<Sent> sent;
  for (int frame = 0; frame < frames; ++frame) {
    const Stores stores = policy.stores();
    policy.write(to.data(), from.data(), bytes);
    sent.push_back({stores, policy.sendOff(1)});
  }
  return sent;
}

// Sends frames for one period. Returns how the last one was stored, which is no trial.
Stores ordinary(StorePolicy& policy) {
  Stores stores = policy.stores();
  for (int frame = 0; frame < kPeriod; ++frame) {
    stores = policy.stores();
    policy.sendOff(1);
  }
  return stores;
}

TEST(StorePolicyTest, AFewFramesGoTheOtherWay) {
  StorePolicy policy;
  int cached = 0;
  int streamed = 0;
  for (const Sent& sent : send(policy, 2 * kPeriod)) {
    cached += sent.written == StoreSample::kCached;
    streamed += sent.written == StoreSample::kStreamed;
    EXPECT_EQ(sent.stores == Stores::kStreamed, sent.written == StoreSample::kStreamed);
  }
  EXPECT_EQ(cached, 8);
  EXPECT_EQ(streamed, 8);
}

TEST(StorePolicyTest, SmallFramesAreNoTrials) {
  StorePolicy policy;
  for (const Sent& sent : send(policy, 2 * kPeriod, 100)) {
    EXPECT_EQ(sent.written, StoreSample::kNone);
  }
}

TEST(StorePolicyTest, FramesThatItDidNotWriteAreNoTrials) {
  StorePolicy policy;
  for (int frame = 0; frame < 2 * kPeriod; ++frame) {
    EXPECT_EQ(policy.sendOff(1), StoreSample::kNone);
  }
}

TEST(StorePolicyTest, WritesWhatItIsGiven) {
  StorePolicy policy;
  for (size_t bytes : {size_t{1}, size_t{100}, kFrame - 3, kFrame}) {
    for (int frame = 0; frame < kPeriod; ++frame) {
      std::vector<std::byte> from(bytes, static_cast<std::byte>(frame));
      std::vector<std::byte> to(bytes);
      policy.write(to.data(), from.data(), bytes);
      policy.sendOff(1);
      ASSERT_EQ(to, from) << bytes;
    }
  }
}

// Each look at this clock advances it by `step`, so that everything appears to take that long.
struct SteppingClock {
  static StorePolicy::Clock::time_point now() { return time += step; }

  static inline StorePolicy::Clock::time_point time;
  static inline StorePolicy::Clock::duration step;
};

class PassageTimes : public ::testing::Test {
 protected:
  // Sends frames that take their readers longer if they were stored in the way `slow`. Streamed
  // ones also take their writer `extra` time.
  void go(StoreSample slow, StorePolicy::Clock::duration extra = {}) {
    for (int frame = 0; frame < 2 * kPeriod; ++frame) {
      SteppingClock::step =
          kShort +
          (store_policy_.stores() == Stores::kStreamed ? extra : StorePolicy::Clock::duration());
      store_policy_.write(frame_.data(), input_.data(), kFrame);
      const StoreSample written = store_policy_.sendOff(kReaders);
      SteppingClock::step = slow == written ? 2 * kShort : kShort;
      store_policy_.observe(written, frame_.data(), kFrame);
    }
  }

  static constexpr int kReaders = 7;
  static constexpr std::chrono::microseconds kShort{1};
  StorePolicy store_policy_{SteppingClock::now};
  std::vector<std::byte> frame_ = std::vector<std::byte>(kFrame);
  std::vector<std::byte> input_ = std::vector<std::byte>(kFrame, std::byte{1});
};

TEST_F(PassageTimes, GoesTheWayThatIsReadFaster) {
  EXPECT_EQ(ordinary(store_policy_), Stores::kCached);
  go(StoreSample::kCached);
  EXPECT_EQ(ordinary(store_policy_), Stores::kStreamed);
  go(StoreSample::kStreamed);
  EXPECT_EQ(ordinary(store_policy_), Stores::kCached);
}

TEST_F(PassageTimes, ATrialChangesNothingOfWhatIsBetter) {
  go(StoreSample::kCached);
  for (int frame = 0; frame < kPeriod; ++frame) {
    ASSERT_EQ(store_policy_.preferred(), Stores::kStreamed);
    ASSERT_TRUE(store_policy_.isTrial() || store_policy_.stores() == Stores::kStreamed) << frame;
    store_policy_.sendOff(kReaders);
  }
}

TEST_F(PassageTimes, WhatIsWrittenSlowlyIsNotMadeUpForByReaders) {
  go(StoreSample::kCached, 1000 * kShort);
  EXPECT_EQ(ordinary(store_policy_), Stores::kCached);
}

TEST_F(PassageTimes, FramesThatAreNoTrialsChangeNothing) {
  go(StoreSample::kCached);
  for (int look = 0; look < 100; ++look) {
    store_policy_.observe(StoreSample::kNone, frame_.data(), kFrame);
    store_policy_.observe(StoreSample::kStreamed, frame_.data(), 100);
  }
  EXPECT_EQ(ordinary(store_policy_), Stores::kStreamed);
}

}  // namespace
}  // namespace bluefog
