#include "transport/memory/Segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/Pages.hpp"
#include "core/SharedMemory.hpp"
#include "transport/tuning/Tuning.hpp"

namespace bluefog {
namespace {

// These areas reserve addresses and no memory. They are larger than what a rank has in results, and
// in windows, at the same time.
constexpr size_t kHeapBytes = size_t{16} << 30;
constexpr size_t kRoomBytes = size_t{256} << 30;

size_t eventCountsAt() {
  return roundUp(sizeof(GroupFailureCell));
}
size_t blockedStatesAt(int size) {
  return eventCountsAt() + roundUp(sizeof(EventCount) * static_cast<size_t>(size));
}
size_t callsMadeAt(int size) {
  return blockedStatesAt(size) + roundUp(sizeof(BlockedState) * static_cast<size_t>(size));
}
size_t coreMapAt(int size) {
  return callsMadeAt(size) + roundUp(sizeof(CallsMade) * static_cast<size_t>(size));
}
size_t boardsAt(int size) {
  return coreMapAt(size) + roundUp(CoreMap::bytes(size));
}
// Returns false where the process is limited in its addresses or in the size of files, which heaps
// and window areas would exceed.
bool mayHaveAreas() {
  for (const auto resource : {RLIMIT_AS, RLIMIT_FSIZE}) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) {
      return false;
    }
  }
  return true;
}
bool isSealed(const Fd& memory) {
  const int seals = ::fcntl(memory.get(), F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

// Returns whether this is an ordinary file without a name. (A file on tmpfs looks like a memfd that
// takes no seals, hence the comparison with F_SEAL_SEAL.)
bool isUnlinkedFile(const Fd& memory) {
  const int seals = ::fcntl(memory.get(), F_GET_SEALS);
  struct stat status{};
  return (seals < 0 || seals == F_SEAL_SEAL) && ::fstat(memory.get(), &status) == 0 &&
         status.st_nlink == 0;
}

size_t sizeOf(const Fd& memory) {
  struct stat status{};
  return ::fstat(memory.get(), &status) == 0 ? static_cast<size_t>(status.st_size) : 0;
}

size_t laneBytes() {
  return roundUp(Segment::laneShape().bytes()) + roundUp(sizeof(ControlRing));
}

}  // namespace

RingShape Segment::boardShape(int size) {
  return {static_cast<uint32_t>(size - 1), tuning::kFramesPerRing, tuning::kFrameBytes};
}

RingShape Segment::laneShape() {
  return {1, tuning::kFramesPerRing, tuning::kFrameBytes};
}

size_t Segment::bytes(int size) {
  const auto n = static_cast<size_t>(size);
  return boardsAt(size) + kBoards * n * roundUp(boardShape(size).bytes()) + n * n * laneBytes();
}

size_t Segment::areasAt(int size) {
  return roundUp(bytes(size), kAreaAlignment);
}

size_t Segment::withAreas(int size) {
  return areasAt(size) + (kHeapBytes + kRoomBytes) * static_cast<size_t>(size);
}

Fd Segment::create(int size, std::string* note) {
  const size_t dense = bytes(size);
  SharedMemory memory = SharedMemory::create(mayHaveAreas() ? withAreas(size) : dense, dense);
  if (note != nullptr) {
    *note = memory.note;
  }
  return std::move(memory.fd);
}

Segment::Segment(const Fd& memory, int size)
    : memory_(memory.duplicate()), size_(size), is_file_(isUnlinkedFile(memory)) {
  const size_t without = bytes(size);
  // The size of any other kind of file could be reduced later, and a process that then reads beyond
  // the new end is killed.
  const size_t whole = isSealed(memory) || is_file_ ? sizeOf(memory) : 0;
  if (whole != without && whole != withAreas(size)) {
    throw std::runtime_error(
        "the shared memory that group rank 0 sent is not of this version's layout");
  }
  has_areas_ = whole != without;
  void* data =
      ::mmap(nullptr, without, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory.get(), 0);
  if (data == MAP_FAILED) {
    throwErrno("mapping " + std::to_string(without) + " bytes of shared memory");
  }
  mapping_ = Mapping(data, without);
  // A forked child (a DataLoader's worker) must neither keep the memory alive nor write to it.
  ::madvise(data, without, MADV_DONTFORK);
  ::madvise(data, without, MADV_DONTDUMP);
}

size_t Segment::bytesOf(Area area) const {
  if (!has_areas_) {
    return 0;
  }
  return area == Area::kHeap ? kHeapBytes : kRoomBytes;
}

size_t Segment::at(Area area, int rank) const {
  return areasAt(size_) + (kHeapBytes + kRoomBytes) * static_cast<size_t>(rank) +
         (area == Area::kHeap ? 0 : kHeapBytes);
}

Segment::FindRoom Segment::roomIn(Area area, int rank) const {
  if (!is_file_) {
    return [](size_t, size_t) { return true; };
  }
  const auto file = std::make_shared<Fd>(memory_.duplicate());
  return [file, begin = at(area, rank)](size_t at, size_t bytes) {
    return ::fallocate(file->get(), 0, static_cast<off_t>(begin + at), static_cast<off_t>(bytes)) ==
           0;
  };
}

Mapping Segment::map(Area area, int rank, int protection) const {
  const size_t bytes = bytesOf(area);
  if (bytes == 0) {
    return {};
  }
  // More addresses are reserved than needed, so that an aligned range can be kept and the rest
  // returned.
  const size_t spare = bytes + kAreaAlignment;
  void* reserved =
      ::mmap(nullptr, spare, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) {
    return {};
  }
  auto* begin = static_cast<std::byte*>(reserved);
  const size_t before = -reinterpret_cast<uintptr_t>(begin) % kAreaAlignment;
  ::munmap(begin, before);
  ::munmap(begin + before + bytes, spare - before - bytes);
  Mapping mapping(begin + before, bytes);
  void* data = ::mmap(mapping.data(), bytes, protection, MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
                      memory_.get(), static_cast<off_t>(at(area, rank)));
  if (data == MAP_FAILED) {
    return {};
  }
  ::madvise(data, bytes, MADV_DONTDUMP);
  return mapping;
}

GroupFailureCell& Segment::groupFailure() const {
  return *reinterpret_cast<GroupFailureCell*>(mapping_.data());
}

EventCount& Segment::eventCount(int rank) const {
  return *reinterpret_cast<EventCount*>(mapping_.data() + eventCountsAt() +
                                        sizeof(EventCount) * static_cast<size_t>(rank));
}

BlockedState& Segment::blockedState(int rank) const {
  return *reinterpret_cast<BlockedState*>(mapping_.data() + blockedStatesAt(size_) +
                                          sizeof(BlockedState) * static_cast<size_t>(rank));
}

CallsMade& Segment::callsMade(int rank) const {
  return *reinterpret_cast<CallsMade*>(mapping_.data() + callsMadeAt(size_) +
                                       sizeof(CallsMade) * static_cast<size_t>(rank));
}

CoreMap& Segment::coreMap() const {
  return *reinterpret_cast<CoreMap*>(mapping_.data() + coreMapAt(size_));
}

std::byte* Segment::board(int which, int writer) const {
  const auto index =
      static_cast<size_t>(which) * static_cast<size_t>(size_) + static_cast<size_t>(writer);
  return mapping_.data() + boardsAt(size_) + index * roundUp(boardShape(size_).bytes());
}

std::byte* Segment::lane(int from, int to) const {
  const auto n = static_cast<size_t>(size_);
  const size_t index = static_cast<size_t>(from) * n + static_cast<size_t>(to);
  return board(kBoards, 0) + index * laneBytes();
}

ControlRing& Segment::controlRing(int from, int to) const {
  return *reinterpret_cast<ControlRing*>(lane(from, to) + roundUp(laneShape().bytes()));
}

}  // namespace bluefog
