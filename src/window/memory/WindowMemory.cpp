#include "window/memory/WindowMemory.hpp"

#include <sys/mman.h>

#include <optional>
#include <stdexcept>
#include <utility>

#include "core/Pages.hpp"

namespace bluefog {
WindowMemory::WindowMemory(std::shared_ptr<const Segments> segments, int rank)
    : segments_(std::move(segments)),
      rank_(rank),
      find_room_(segments_->shared().roomIn(Segment::Area::kRoom, rank)),
      free_(segments_->shared().bytesOf(Segment::Area::kRoom)),
      rooms_(static_cast<size_t>(segments_->shared().size())),
      heaps_(rooms_.size()),
      heaps_to_write_(rooms_.size()) {
  free_.take(kPage);
}

std::unique_ptr<WindowBlock> WindowMemory::take(size_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::optional<Range> range = free_.take(roundUp(bytes));
  if (!range) {
    return nullptr;
  }
  if (!find_room_(0, kPage) || !find_room_(range->begin, range->end - range->begin)) {
    free_.add(*range);
    return nullptr;
  }
  return std::make_unique<WindowBlock>(shared_from_this(), range->begin, bytes);
}

void WindowMemory::giveBack(uint64_t at, size_t bytes) {
  if (process_.isForked()) {
    return;  // the memory is the parent's
  }
  if (std::byte* own = mappedOwn()) {
    ::madvise(own + at, roundUp(bytes), MADV_REMOVE);
  }
  const std::lock_guard lock(mutex_);
  free_.add({at, at + roundUp(bytes)});
}

void WindowMemory::leave() {
  if (process_.isForked()) {
    return;
  }
  // If there is no memory even for the first page, no window block was ever taken, and nobody needs
  // to know.
  std::byte* own = mappedOwn();
  if (own != nullptr && find_room_(0, kPage)) {
    reinterpret_cast<std::atomic<uint32_t>*>(own)->store(1);
  }
}

std::byte* WindowMemory::mappedOwn() {
  const std::lock_guard lock(mutex_);
  const Mapping& own = rooms_[static_cast<size_t>(rank_)];
  return own.size() > 0 ? own.data() : nullptr;
}

WindowBlock::~WindowBlock() {
  memory_->giveBack(at_, bytes_);
}

std::byte* WindowBlock::data() const {
  return memory_->own() + at_;
}

std::byte* WindowMemory::mapped(std::vector<Mapping>& mappings, Segment::Area area, int rank) {
  const std::lock_guard lock(mutex_);
  Mapping& mapping = mappings[static_cast<size_t>(rank)];
  if (mapping.size() == 0) {
    const bool is_room = area == Segment::Area::kRoom;
    mapping = map(area, rank, is_room ? PROT_READ | PROT_WRITE : PROT_READ);
    ::madvise(mapping.data(), mapping.size(), MADV_DONTFORK);
  }
  return mapping.data();
}

// A forked child has this mapping, too, because the program has tensors there.
std::shared_ptr<std::byte> WindowMemory::heapToWrite(int rank) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Mapping>& mapping = heaps_to_write_[static_cast<size_t>(rank)];
  if (!mapping) {
    mapping = std::make_shared<Mapping>(map(Segment::Area::kHeap, rank, PROT_READ | PROT_WRITE));
  }
  return {mapping, mapping->data()};
}

Mapping WindowMemory::map(Segment::Area area, int rank, int protection) const {
  Mapping mapping = segments_->shared().map(area, rank, protection);
  if (mapping.size() == 0) {
    throw std::runtime_error(
        "the memory of windows cannot be mapped; is the process limited in its addresses or the "
        "size of files (ulimit -v, -f)?");
  }
  return mapping;
}

}  // namespace bluefog
