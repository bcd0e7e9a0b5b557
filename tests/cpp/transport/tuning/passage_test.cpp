#include "transport/tuning/Passage.hpp"

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

std::vector<Sent> send(Passage& passage, int frames, size_t bytes = kFrame) {
  const std::vector<std::byte> from(bytes);
  std::vector<std::byte> to(bytes);
  std::vector<Sent> sent;
  for (int frame = 0; frame < frames; ++frame) {
    const Stores stores = passage.stores();
    passage.write(to.data(), from.data(), bytes);
    sent.push_back({stores, passage.sendOff(1)});
  }
  return sent;
}

// Of the last frame of a period, which is no trial.
Stores ordinary(Passage& passage) {
  Stores stores = passage.stores();
  for (int frame = 0; frame < kPeriod; ++frame) {
    stores = passage.stores();
    passage.sendOff(1);
  }
  return stores;
}

TEST(PassageTest, AFewFramesGoTheOtherWay) {
  Passage passage;
  int cached = 0;
  int streamed = 0;
  for (const Sent& sent : send(passage, 2 * kPeriod)) {
    cached += sent.written == StoreSample::kCached;
    streamed += sent.written == StoreSample::kStreamed;
    EXPECT_EQ(sent.stores == Stores::kStreamed, sent.written == StoreSample::kStreamed);
  }
  EXPECT_EQ(cached, 8);
  EXPECT_EQ(streamed, 8);
}

TEST(PassageTest, SmallFramesAreNoTrials) {
  Passage passage;
  for (const Sent& sent : send(passage, 2 * kPeriod, 100)) {
    EXPECT_EQ(sent.written, StoreSample::kNone);
  }
}

TEST(PassageTest, FramesThatItDidNotWriteAreNoTrials) {
  Passage passage;
  for (int frame = 0; frame < 2 * kPeriod; ++frame) {
    EXPECT_EQ(passage.sendOff(1), StoreSample::kNone);
  }
}

TEST(PassageTest, WritesWhatItIsGiven) {
  Passage passage;
  for (size_t bytes : {size_t{1}, size_t{100}, kFrame - 3, kFrame}) {
    for (int frame = 0; frame < kPeriod; ++frame) {
      std::vector<std::byte> from(bytes, static_cast<std::byte>(frame));
      std::vector<std::byte> to(bytes);
      passage.write(to.data(), from.data(), bytes);
      passage.sendOff(1);
      ASSERT_EQ(to, from) << bytes;
    }
  }
}

// A clock that goes on by `step` at each look, so that everything takes that long.
struct SteppingClock {
  static Passage::Clock::time_point now() { return time += step; }

  static inline Passage::Clock::time_point time;
  static inline Passage::Clock::duration step;
};

class PassageTimes : public ::testing::Test {
 protected:
  // Has frames of one way take their readers longer, and streamed ones their writer `extra`.
  void go(StoreSample slow, Passage::Clock::duration extra = {}) {
    for (int frame = 0; frame < 2 * kPeriod; ++frame) {
      SteppingClock::step =
          kShort + (passage_.stores() == Stores::kStreamed ? extra : Passage::Clock::duration());
      passage_.write(frame_.data(), input_.data(), kFrame);
      const StoreSample written = passage_.sendOff(kReaders);
      SteppingClock::step = slow == written ? 2 * kShort : kShort;
      passage_.look(written, frame_.data(), kFrame);
    }
  }

  static constexpr int kReaders = 7;
  static constexpr std::chrono::microseconds kShort{1};
  Passage passage_{SteppingClock::now};
  std::vector<std::byte> frame_ = std::vector<std::byte>(kFrame);
  std::vector<std::byte> input_ = std::vector<std::byte>(kFrame, std::byte{1});
};

TEST_F(PassageTimes, GoesTheWayThatIsReadFaster) {
  EXPECT_EQ(ordinary(passage_), Stores::kCached);
  go(StoreSample::kCached);
  EXPECT_EQ(ordinary(passage_), Stores::kStreamed);
  go(StoreSample::kStreamed);
  EXPECT_EQ(ordinary(passage_), Stores::kCached);
}

TEST_F(PassageTimes, ATrialChangesNothingOfWhatIsBetter) {
  go(StoreSample::kCached);
  for (int frame = 0; frame < kPeriod; ++frame) {
    ASSERT_EQ(passage_.better(), Stores::kStreamed);
    ASSERT_TRUE(passage_.isTrial() || passage_.stores() == Stores::kStreamed) << frame;
    passage_.sendOff(kReaders);
  }
}

TEST_F(PassageTimes, WhatIsWrittenSlowlyIsNotMadeUpForByReaders) {
  go(StoreSample::kCached, 1000 * kShort);
  EXPECT_EQ(ordinary(passage_), Stores::kCached);
}

TEST_F(PassageTimes, FramesThatAreNoTrialsChangeNothing) {
  go(StoreSample::kCached);
  for (int look = 0; look < 100; ++look) {
    passage_.look(StoreSample::kNone, frame_.data(), kFrame);
    passage_.look(StoreSample::kStreamed, frame_.data(), 100);
  }
  EXPECT_EQ(ordinary(passage_), Stores::kStreamed);
}

}  // namespace
}  // namespace bluefog
