#include "transport/memory/Ring.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <new>
#include <thread>
#include <vector>

#include "support/ranks.hpp"

namespace bluefog::testing {
namespace {

// This is ordinary memory with one mapping, so that ThreadSanitizer sees the whole protocol.
class RingMemory {
 public:
  explicit RingMemory(const RingShape& shape)
      : data_(static_cast<std::byte*>(
            ::operator new(shape.bytes(), std::align_val_t(RingShape::kLine)))) {
    std::memset(data_, 0, shape.bytes());
  }
  RingMemory(const RingMemory&) = delete;
  RingMemory& operator=(const RingMemory&) = delete;
  ~RingMemory() { ::operator delete(data_, std::align_val_t(RingShape::kLine)); }
  std::byte* get() const { return data_; }

 private:
  std::byte* data_;
};

uint64_t checksum(const std::byte* data, size_t bytes) {
  uint64_t sum = 14695981039346656037ull;
  for (size_t i = 0; i < bytes; ++i) {
    sum = (sum ^ static_cast<uint64_t>(data[i])) * 1099511628211ull;
  }
  return sum;
}

void fillFrame(Frame* frame, uint64_t number, uint32_t payload) {
  frame->id = number;
  frame->bytes = static_cast<uint32_t>(number % (payload + 1));
  std::byte* data = payloadOf(frame);
  for (uint32_t i = 0; i < frame->bytes; ++i) {
    data[i] = static_cast<std::byte>(number * 7 + i);
  }
  frame->offset = checksum(data, frame->bytes);
}

void writeFrames(RingWriter& writer, uint64_t frames) {
  for (uint64_t number = 0; number < frames; ++number) {
    while (!writer.room()) {
      std::this_thread::yield();
    }
    fillFrame(writer.slot(), number, writer.shape().payload);
    writer.publish();
  }
}

void readFrames(RingReader& reader, size_t payload, uint64_t frames, uint64_t rest_every) {
  for (uint64_t number = 0; number < frames; ++number) {
    const Frame* frame = reader.front();
    while (frame == nullptr) {
      std::this_thread::yield();
      frame = reader.front();
    }
    ASSERT_EQ(frame->id, number);
    ASSERT_EQ(frame->bytes, number % (payload + 1));
    ASSERT_EQ(frame->offset, checksum(payloadOf(frame), frame->bytes)) << "frame " << number;
    reader.pop();
    if (rest_every != 0 && number % rest_every == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

void exchangeFrames(const RingShape& shape, uint64_t frames) {
  const RingMemory memory(shape);
  runThreads(static_cast<int>(shape.readers) + 1, [&](int thread) {
    if (thread == 0) {
      RingWriter writer(memory.get(), shape);
      writeFrames(writer, frames);
    } else {
      RingReader reader(memory.get(), shape, static_cast<uint32_t>(thread - 1));
      readFrames(reader, shape.payload, frames,
                 thread == 1 ? 0 : 1000u * static_cast<uint64_t>(thread));
    }
  });
}

TEST(RingTest, AReaderSkipsFramesThatAreStillToCome) {
  const RingShape shape{2, 4, 64};
  const RingMemory memory(shape);
  RingWriter writer(memory.get(), shape);
  RingReader patient(memory.get(), shape, 0);
  RingReader hasty(memory.get(), shape, 1);
  hasty.skip(10);
  for (uint64_t number = 0; number < 12; ++number) {
    ASSERT_TRUE(writer.room());
    ASSERT_EQ(hasty.front(), nullptr) << number;
    fillFrame(writer.slot(), number, shape.payload);
    writer.publish();
    ASSERT_EQ(patient.front()->id, number);
    if (number < 10) {
      patient.pop();
    } else {
      ASSERT_EQ(hasty.front()->id, number);
      hasty.pop();
      patient.pop();
    }
  }
  EXPECT_TRUE(writer.allRead());
}

TEST(RingTest, OneReaderSeesEveryFrame) {
  exchangeFrames({1, 8, 64}, 100'000);
}

TEST(RingTest, ReadersOfDifferentSpeedSeeEveryFrame) {
  exchangeFrames({3, 5, 128}, 100'000);
}

TEST(RingTest, OneSlotIsARingToo) {
  exchangeFrames({2, 1, 64}, 2'000);
}

class FullRing : public ::testing::Test {
 protected:
  void SetUp() override {
    for (uint64_t number = 0; number < kShape.slots; ++number) {
      ASSERT_TRUE(writer_.room());
      fillFrame(writer_.slot(), number, kShape.payload);
      writer_.publish();
    }
  }

  static constexpr RingShape kShape{2, 4, 64};
  RingMemory memory_{kShape};
  RingWriter writer_{memory_.get(), kShape};
  RingReader first_{memory_.get(), kShape, 0};
  RingReader second_{memory_.get(), kShape, 1};
};

TEST_F(FullRing, WaitsForEveryReader) {
  EXPECT_FALSE(writer_.room());
  EXPECT_TRUE(writer_.waitsFor(0));
  EXPECT_TRUE(writer_.waitsFor(1));
  first_.pop();
  EXPECT_FALSE(writer_.room());
  EXPECT_FALSE(writer_.waitsFor(0));
  EXPECT_TRUE(writer_.waitsFor(1));
  second_.pop();
  EXPECT_TRUE(writer_.room());
  EXPECT_FALSE(writer_.waitsFor(1));
}

TEST_F(FullRing, HasRoomForAsManyAsWereRead) {
  for (int i = 0; i < 3; ++i) {
    first_.pop();
    second_.pop();
  }
  for (uint64_t number = 4; number < 7; ++number) {
    ASSERT_TRUE(writer_.room());
    fillFrame(writer_.slot(), number, kShape.payload);
    writer_.publish();
  }
  EXPECT_FALSE(writer_.room());
  EXPECT_EQ(first_.front()->id, 3u);
}

TEST_F(FullRing, EndsForAReaderThatHasReadAll) {
  for (uint64_t number = 0; number < 4; ++number) {
    ASSERT_NE(first_.front(), nullptr);
    EXPECT_EQ(first_.front()->id, number);
    first_.pop();
  }
  EXPECT_EQ(first_.front(), nullptr);
}

TEST_F(FullRing, IsNotFooledByAReaderThatIsAheadOfTheWriter) {
  cursorAt(memory_.get(), 1).store(1'000'000);
  EXPECT_FALSE(writer_.room());
  EXPECT_TRUE(writer_.waitsFor(1));
  second_.pop();
  EXPECT_TRUE(writer_.room());
  fillFrame(writer_.slot(), 4, kShape.payload);
  writer_.publish();
  EXPECT_FALSE(writer_.room());
}

}  // namespace
}  // namespace bluefog::testing
