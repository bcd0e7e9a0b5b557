#include "transport/memory/SharedHeap.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <optional>

#include "support/ranks.hpp"

namespace bluefog::testing {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class SharedHeapTest : public ::testing::Test {
 protected:
  size_t memoryInUse() const {
    struct stat status{};
    EXPECT_EQ(::fstat(memory_.get(), &status), 0);
    return static_cast<size_t>(status.st_blocks) * 512;
  }

  const Fd memory_ = Segment::create(2);
  const Segment segment_{memory_, 2};
  const std::shared_ptr<SharedHeap> heap_ = SharedHeap::make(segment_, 1);
};

TEST_F(SharedHeapTest, APeerReadsWhatIsThere) {
  std::byte* block = heap_->take(kMiB);
  ASSERT_NE(block, nullptr);
  std::memset(block, 7, kMiB);
  const std::optional<uint64_t> place = heap_->placeOf(block, kMiB);
  ASSERT_TRUE(place.has_value());
  const Mapping seen = segment_.map(Segment::Area::kHeap, 1, PROT_READ);
  EXPECT_EQ(std::memcmp(seen.data() + *place, block, kMiB), 0);
  EXPECT_NE(
      std::memcmp(segment_.map(Segment::Area::kHeap, 0, PROT_READ).data() + *place, block, kMiB),
      0);
}

TEST_F(SharedHeapTest, BlocksDoNotTouch) {
  std::byte* one = heap_->take(3);
  std::byte* other = heap_->take(kMiB + 1);
  std::memset(one, 1, 4096);
  std::memset(other, 2, kMiB + 1);
  EXPECT_EQ(one[4095], std::byte{1});
}

TEST_F(SharedHeapTest, WhatIsGivenBackTakesNoMemory) {
  const size_t before = memoryInUse();
  std::byte* block = heap_->take(8 * kMiB);
  std::memset(block, 1, 8 * kMiB);
  EXPECT_GE(memoryInUse(), before + 8 * kMiB);
  heap_->giveBack(block, 8 * kMiB);
  EXPECT_EQ(memoryInUse(), before);
}

TEST_F(SharedHeapTest, WhatIsGivenBackTakesNothingFromItsNeighbors) {
  const size_t before = memoryInUse();
  for (const size_t last : {0, 1, 2}) {
    std::array<std::byte*, 3> blocks{};  // they lie in one huge page and the next
    for (std::byte*& block : blocks) {
      block = heap_->take(kMiB - 4096);
      std::memset(block, 9, kMiB - 4096);
    }
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (i != last) {
        heap_->giveBack(blocks[i], kMiB - 4096);
      }
    }
    EXPECT_EQ(blocks[last][0], std::byte{9});
    EXPECT_EQ(blocks[last][kMiB - 4097], std::byte{9});
    heap_->giveBack(blocks[last], kMiB - 4096);
    EXPECT_EQ(memoryInUse(), before);
  }
}

TEST_F(SharedHeapTest, KnowsWhatLiesInIt) {
  std::byte* block = heap_->take(kMiB);
  EXPECT_TRUE(heap_->placeOf(block + 100, kMiB - 100));
  EXPECT_FALSE(heap_->placeOf(block - 1, 2));
  EXPECT_FALSE(heap_->placeOf(block, segment_.bytesOf(Segment::Area::kHeap) + 1));
  const std::byte elsewhere{};
  EXPECT_FALSE(heap_->placeOf(&elsewhere, 1));
}

// The child looks only after the parent has changed the block and given it back.
TEST_F(SharedHeapTest, AForkedChildHasWhatWasThereAtTheFork) {
  std::byte* block = heap_->take(kMiB);
  std::byte* other = heap_->take(kMiB);
  std::memset(block, 5, kMiB);
  std::memset(other, 6, kMiB);
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const Fd reads(pipe[0]);
  Fd writes(pipe[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    writes.reset();
    char none{};
    const bool waited = ::read(reads.get(), &none, 1) == 0;
    const bool sees = block[17] == std::byte{5} && block[kMiB - 1] == std::byte{5};
    std::memset(other, 1, kMiB);
    heap_->giveBack(block, kMiB);
    ::_exit(waited && sees ? 0 : 1);
  }
  std::memset(block, 7, kMiB);
  heap_->giveBack(block, kMiB);
  std::byte* next = heap_->take(kMiB);
  std::memset(next, 8, kMiB);
  writes.reset();
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(next[17], std::byte{8});
  EXPECT_EQ(other[17], std::byte{6});
}

// The limit on the size of files is too small for a file with heaps.
TEST(SharedHeapWithoutRoomTest, IsEmpty) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit little{size_t{4} << 30, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
  const Fd memory = Segment::create(2);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  const Segment segment(memory, 2);
  EXPECT_EQ(segment.bytesOf(Segment::Area::kHeap), 0U);
  EXPECT_EQ(SharedHeap::make(segment, 0), nullptr);
}

}  // namespace
}  // namespace bluefog::testing
