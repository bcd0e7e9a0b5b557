#include "transport/memory/Segment.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/ranks.hpp"
#include "transport/operations/GroupFailure.hpp"

namespace bluefog::testing {
namespace {

off_t sizeOf(const Fd& file) {
  struct stat status{};
  EXPECT_EQ(::fstat(file.get(), &status), 0);
  return status.st_size;
}

Fd unsealed(off_t size) {
  Fd file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(file.get(), size), 0);
  return file;
}

// A File is an ordinary file, as ranks share one where the system refuses memfds. It lies in the
// working directory, which may be on a disk: not every file system knows seals.
class File {
 public:
  explicit File(off_t size) : fd_(::mkstemp(name_.data())) {
    EXPECT_TRUE(fd_.valid());
    EXPECT_EQ(::ftruncate(fd_.get(), size), 0);
  }
  ~File() { ::unlink(name_.c_str()); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const Fd& get() const { return fd_; }
  void unlink() { ::unlink(name_.c_str()); }

 private:
  std::string name_ = "segment-test-XXXXXX";
  Fd fd_;
};

TEST(SegmentTest, SizeIsSealed) {
  const Fd memory = Segment::create(3);
  const off_t size = sizeOf(memory);
  EXPECT_NE(::ftruncate(memory.get(), size - 4096), 0);
  EXPECT_NE(::ftruncate(memory.get(), size + 4096), 0);
  EXPECT_NE(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  EXPECT_EQ(sizeOf(memory), size);
}

TEST(SegmentTest, MemoryOfAnotherGroupSizeIsRefused) {
  const Fd memory = Segment::create(3);
  EXPECT_THROW(Segment(memory, 4), std::runtime_error);
  EXPECT_THROW(Segment(memory, 2), std::runtime_error);
}

TEST(SegmentTest, UnsealedMemoryIsRefused) {
  EXPECT_THROW(Segment(unsealed(sizeOf(Segment::create(2))), 2), std::runtime_error);
}

TEST(SegmentTest, AFileIsTakenWhereItHasNoName) {
  File file(sizeOf(Segment::create(2)));
  EXPECT_THROW(Segment(file.get(), 2), std::runtime_error);
  file.unlink();
  EXPECT_NO_THROW(Segment(file.get(), 2));
}

TEST(SegmentTest, NoFileIsRefused) {
  EXPECT_THROW(Segment(Fd(), 2), std::runtime_error);
}

struct Area {
  const std::byte* begin;
  size_t bytes;
  std::string name;
};

void addPairs(const Segment& segment, int size, std::vector<Area>& areas) {
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      const std::string pair = std::to_string(from) + "->" + std::to_string(to);
      areas.push_back({segment.lane(from, to), Segment::laneShape().bytes(), "lane " + pair});
      areas.push_back({reinterpret_cast<const std::byte*>(&segment.controlRing(from, to)),
                       sizeof(ControlRing), "controls " + pair});
    }
  }
}

std::vector<Area> areasOf(const Segment& segment, int size) {
  std::vector<Area> areas{{reinterpret_cast<const std::byte*>(&segment.groupFailure()),
                           sizeof(GroupFailureCell), "cell"}};
  for (int rank = 0; rank < size; ++rank) {
    areas.push_back({reinterpret_cast<const std::byte*>(&segment.eventCount(rank)),
                     sizeof(EventCount), "event count " + std::to_string(rank)});
    for (int which = 0; which < Segment::kBoards; ++which) {
      areas.push_back({segment.board(which, rank), segment.boardShape().bytes(),
                       "board " + std::to_string(which) + " of " + std::to_string(rank)});
    }
  }
  addPairs(segment, size, areas);
  std::sort(areas.begin(), areas.end(),
            [](const Area& a, const Area& b) { return a.begin < b.begin; });
  return areas;
}

TEST(SegmentTest, AreasDoNotOverlap) {
  for (int size : {1, 2, 3, 5, 9}) {
    const Fd memory = Segment::create(size);
    const Segment segment(memory, size);
    const std::byte* const start = reinterpret_cast<const std::byte*>(&segment.groupFailure());
    const std::byte* end = start;
    for (const Area& area : areasOf(segment, size)) {
      EXPECT_GE(area.begin, end) << size << " ranks: " << area.name;
      EXPECT_EQ((area.begin - start) % 64, 0) << area.name;
      end = area.begin + area.bytes;
    }
    EXPECT_LE(end - start, sizeOf(memory)) << size << " ranks";
  }
}

TEST(SegmentTest, EveryMappingShowsTheSameMemory) {
  const Fd memory = Segment::create(2);
  const Segment mine(memory, 2);
  const Segment theirs(memory, 2);
  mine.board(1, 1)[100] = std::byte{42};
  mine.controlRing(1, 0).written.store(7);
  EXPECT_EQ(theirs.board(1, 1)[100], std::byte{42});
  EXPECT_EQ(theirs.controlRing(1, 0).written.load(), 7u);
}

TEST(SegmentTest, IsZeroAtFirst) {
  const Segment segment(Segment::create(2), 2);
  EXPECT_EQ(segment.groupFailure().state.load(), static_cast<uint32_t>(GroupFailureCell::kNone));
  EXPECT_EQ(cursorAt(segment.board(0, 1), 0).load(), 0u);
  EXPECT_EQ(segment.eventCount(1).epoch.load(), 0u);
}

}  // namespace
}  // namespace bluefog::testing
