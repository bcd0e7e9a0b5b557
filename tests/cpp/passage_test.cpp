#include "transport/Passage.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "transport/Ring.hpp"

namespace bluefog {
namespace {

constexpr size_t kFrame = 128 * 1024;
constexpr int kPeriod = 256;

struct Sent {
  Stores stores;
  Written written;
};

std::vector<Sent> send(Passage& passage, int frames) {
  std::vector<Sent> sent;
  for (int frame = 0; frame < frames; ++frame) {
    const Stores stores = passage.stores();
    sent.push_back({stores, passage.sendOff(kFrame, 1)});
  }
  return sent;
}

Stores ordinary(Passage& passage) {
  for (const Sent& sent : send(passage, kPeriod)) {
    if (sent.written == Written::kUntimed) {
      return sent.stores;
    }
  }
  return Stores::kCached;
}

TEST(PassageTest, AFewFramesGoTheOtherWay) {
  Passage passage;
  int cached = 0;
  int streamed = 0;
  for (const Sent& sent : send(passage, 2 * kPeriod)) {
    cached += sent.written == Written::kCached;
    streamed += sent.written == Written::kStreamed;
    EXPECT_EQ(sent.stores == Stores::kStreamed, sent.written == Written::kStreamed);
  }
  EXPECT_EQ(cached, 8);
  EXPECT_EQ(streamed, 8);
}

TEST(PassageTest, SmallFramesAreNoTrials) {
  Passage passage;
  for (int frame = 0; frame < 2 * kPeriod; ++frame) {
    EXPECT_EQ(passage.sendOff(100, 1), Written::kUntimed);
  }
}

TEST(PassageTest, WritesWhatItIsGiven) {
  Passage passage;
  for (size_t bytes : {size_t{1}, size_t{100}, kFrame - 3, kFrame}) {
    for (int frame = 0; frame < kPeriod; ++frame) {
      std::vector<std::byte> from(bytes, static_cast<std::byte>(frame));
      std::vector<std::byte> to(bytes);
      passage.write(to.data(), from.data(), bytes);
      passage.sendOff(bytes, 1);
      ASSERT_EQ(to, from) << bytes;
    }
  }
}

// Under ThreadSanitizer a read takes as long from the cache as from memory.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)

void fetch(const std::byte* at) {
  static_cast<void>(*static_cast<const volatile std::byte*>(at));
}

class PassageTimes : public ::testing::Test {
 protected:
  // Has readers find frames of one way in no cache, and those of the other in their own.
  void go(Written slow) {
    for (int frame = 0; frame < 2 * kPeriod; ++frame) {
      passage_.write(frame_.data(), input_.data(), kFrame);
      const Written written = passage_.sendOff(kFrame, kReaders);
      for (size_t line = 0; line < kFrame; line += RingShape::kLine) {
        const std::byte* at = frame_.data() + line;
        slow == written ? __builtin_ia32_clflush(at) : fetch(at);
      }
      __builtin_ia32_mfence();
      passage_.look(written, frame_.data(), kFrame);
    }
  }

  static constexpr int kReaders = 7;
  Passage passage_;
  std::vector<std::byte> frame_ = std::vector<std::byte>(kFrame);
  std::vector<std::byte> input_ = std::vector<std::byte>(kFrame, std::byte{1});
};

TEST_F(PassageTimes, GoesTheWayThatIsReadFaster) {
  EXPECT_EQ(ordinary(passage_), Stores::kCached);
  go(Written::kCached);
  EXPECT_EQ(ordinary(passage_), Stores::kStreamed);
  go(Written::kStreamed);
  EXPECT_EQ(ordinary(passage_), Stores::kCached);
}

TEST_F(PassageTimes, FramesThatAreNoTrialsChangeNothing) {
  go(Written::kCached);
  for (int look = 0; look < 100; ++look) {
    passage_.look(Written::kUntimed, frame_.data(), kFrame);
    passage_.look(Written::kStreamed, frame_.data(), 100);
  }
  EXPECT_EQ(ordinary(passage_), Stores::kStreamed);
}

#endif

}  // namespace
}  // namespace bluefog
