#include "transport/Passage.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "transport/Ring.hpp"

namespace bluefog {
namespace {

constexpr size_t kFrame = 128 * 1024;
constexpr int kPeriod = 512;

struct Sent {
  Stores stores;
  Trial trial;
};

std::vector<Sent> send(Passage& passage, int frames) {
  std::vector<Sent> sent;
  for (int frame = 0; frame < frames; ++frame) {
    const Stores stores = passage.stores();
    sent.push_back({stores, passage.sendOff(kFrame)});
  }
  return sent;
}

Stores ordinary(Passage& passage) {
  for (const Sent& sent : send(passage, kPeriod)) {
    if (sent.trial == Trial::kNone) {
      return sent.stores;
    }
  }
  return Stores::kCached;
}

TEST(PassageTest, AFewFramesAreWrittenInEitherWay) {
  Passage passage;
  int cached = 0;
  int streamed = 0;
  for (const Sent& sent : send(passage, 2 * kPeriod)) {
    cached += sent.trial == Trial::kCached;
    streamed += sent.trial == Trial::kStreamed;
    EXPECT_EQ(sent.stores == Stores::kStreamed, sent.trial == Trial::kStreamed);
  }
  EXPECT_EQ(cached, 16);
  EXPECT_EQ(streamed, 16);
}

TEST(PassageTest, SmallFramesAreNoTrials) {
  Passage passage;
  for (int frame = 0; frame < 2 * kPeriod; ++frame) {
    EXPECT_EQ(passage.sendOff(100), Trial::kNone);
  }
}

#if defined(__x86_64__)

// Has readers find frames of that trial in no cache, and those of the other way in their own.
void lookWhere(Passage& passage, Trial far) {
  std::vector<std::byte> frame(kFrame, std::byte{1});
  for (int look = 0; look < 5; ++look) {
    for (Trial trial : {Trial::kCached, Trial::kStreamed}) {
      for (size_t line = 0; line < frame.size(); line += RingShape::kLine) {
        if (trial == far) {
          __builtin_ia32_clflush(frame.data() + line);
        } else {
          static_cast<void>(*static_cast<volatile std::byte*>(frame.data() + line));
        }
      }
      __builtin_ia32_mfence();
      passage.look(trial, frame.data(), frame.size());
    }
  }
}

TEST(PassageTest, GoesTheWayThatIsReadFaster) {
  Passage passage;
  EXPECT_EQ(ordinary(passage), Stores::kCached);
  lookWhere(passage, Trial::kCached);
  EXPECT_EQ(ordinary(passage), Stores::kStreamed);
  lookWhere(passage, Trial::kStreamed);
  EXPECT_EQ(ordinary(passage), Stores::kCached);
}

TEST(PassageTest, FramesThatAreNoTrialsChangeNothing) {
  Passage passage;
  lookWhere(passage, Trial::kCached);
  std::vector<std::byte> frame(kFrame);
  for (int look = 0; look < 100; ++look) {
    passage.look(Trial::kNone, frame.data(), frame.size());
    passage.look(Trial::kStreamed, frame.data(), 100);
  }
  EXPECT_EQ(ordinary(passage), Stores::kStreamed);
}

#endif

}  // namespace
}  // namespace bluefog
