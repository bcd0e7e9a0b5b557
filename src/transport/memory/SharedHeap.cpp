#include "transport/memory/SharedHeap.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/Pages.hpp"
#include "core/Reduce.hpp"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // since Linux 6.1; older kernels refuse it
#endif

namespace bluefog {
namespace {

constexpr size_t kHugePage = Segment::kAreaAlignment;

}  // namespace

std::shared_ptr<SharedHeap> SharedHeap::make(const Segment& segment, int rank) {
  Mapping memory = segment.map(Segment::Area::kHeap, rank, PROT_READ | PROT_WRITE);
  return memory.size() == 0 ? nullptr
                            : std::make_shared<SharedHeap>(
                                  std::move(memory), segment.roomIn(Segment::Area::kHeap, rank));
}

SharedHeap::SharedHeap(Mapping memory, Segment::FindRoom find_room)
    : memory_(std::move(memory)),
      find_room_(std::move(find_room)),
      free_(memory_.size()),
      is_fetched_(memory_.size() / kHugePage),
      at_fork_([this] { copyForChild(); },
               [this] {
                 copy_ = Mapping();
                 mutex_.unlock();
               },
               [this] { becomeCopy(); }) {}

std::byte* SharedHeap::take(size_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::optional<Range> range = free_.take(roundUp(bytes));
  if (!range) {
    return nullptr;
  }
  // The room must reach from the start of the first huge page, since fetch() writes to the first
  // byte of each huge page.
  const size_t begin = range->begin / kHugePage * kHugePage;
  if (!find_room_(begin, range->end - begin)) {
    free_.add(*range);
    return nullptr;
  }
  fetch(*range);
  return memory_.data() + range->begin;
}

// Fresh memory takes 2 ms per MiB page by page in a virtual machine, and 0.2 ms by the huge page.
// Few systems give huge pages to shared memory by themselves. Where the program asks for one, its
// first byte has to be there already.
void SharedHeap::fetch(Range range) {
  for (size_t at = range.begin / kHugePage; at < roundUp(range.end, kHugePage) / kHugePage; ++at) {
    if (!is_fetched_[at]) {
      is_fetched_[at] = true;
      std::byte* page = memory_.data() + at * kHugePage;
      *page = std::byte{};
      // The kernel refuses this where memory is fragmented, and then the memory comes page by page.
      ::madvise(page, kHugePage, MADV_COLLAPSE);
    }
  }
}

void SharedHeap::giveBack(std::byte* block, size_t bytes) {
  if (process_.isForked()) {
    return;  // the memory is the parent's
  }
  const auto begin = static_cast<size_t>(block - memory_.data());
  const Range range{begin, begin + roundUp(bytes)};
  const std::lock_guard lock(mutex_);
  const Range free = free_.add(range);
  // Only the huge pages that this block was the last to use go back to the system.
  letGo({std::max(roundUp(free.begin, kHugePage), range.begin / kHugePage * kHugePage),
         std::min(free.end / kHugePage * kHugePage, roundUp(range.end, kHugePage))});
}

void SharedHeap::letGo(Range range) {
  if (range.begin < range.end) {
    ::madvise(memory_.data() + range.begin, range.end - range.begin, MADV_REMOVE);
    std::fill(is_fetched_.begin() + static_cast<ptrdiff_t>(range.begin / kHugePage),
              is_fetched_.begin() + static_cast<ptrdiff_t>(range.end / kHugePage), false);
  }
}

// A fork does not copy shared memory on write. If there is no memory for the copy, the child
// continues to share the heap with the parent.
void SharedHeap::copyForChild() {
  mutex_.lock();
  const std::vector<Range> taken = free_.taken();
  const size_t bytes = taken.empty() ? kPage : taken.back().end;
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return;
  }
  ::madvise(data, bytes, MADV_HUGEPAGE);
  copy_ = Mapping(data, bytes);
  for (const Range& range : taken) {
    std::memcpy(copy_.data() + range.begin, memory_.data() + range.begin, range.end - range.begin);
  }
}

void SharedHeap::becomeCopy() {
  if (copy_.size() > 0) {
    // The child keeps no mapping of the file, which would keep the memory of the whole group alive.
    // A child that could not unmap it would write into tensors of the ranks, so it ends instead.
    if (::mmap(memory_.data(), memory_.size(), PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED ||
        ::mremap(copy_.data(), copy_.size(), copy_.size(), MREMAP_MAYMOVE | MREMAP_FIXED,
                 memory_.data()) == MAP_FAILED) {
      std::abort();
    }
  }
  mutex_.unlock();
}

void SharedHeap::copy(std::byte* to, const std::byte* from, size_t bytes) {
  copyBytes(to, from, bytes);
}

std::optional<uint64_t> SharedHeap::placeOf(const std::byte* data, size_t bytes) const {
  const std::byte* begin = memory_.data();
  if (data < begin || data + bytes > begin + memory_.size()) {
    return std::nullopt;
  }
  return static_cast<uint64_t>(data - begin);
}

}  // namespace bluefog
