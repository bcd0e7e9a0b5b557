#include "transport/SharedHeap.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1; others refuse it
#endif

namespace bluefog {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = Segment::kHeapAlignment;

size_t roundUp(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

SharedHeap::SharedHeap(const Segment& segment, int rank)
    : memory_(segment.mapHeap(rank, PROT_READ | PROT_WRITE)),
      is_fetched_(memory_.size() / kHugePage) {
  if (memory_.size() > 0) {
    free_.emplace(0, memory_.size());
  }
}

std::byte* SharedHeap::take(size_t bytes) {
  const size_t wanted = roundUp(bytes, kPage);
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(free_.begin(), free_.end(), [wanted](const auto& range) {
    return range.second - range.first >= wanted;
  });
  if (found == free_.end()) {
    return nullptr;
  }
  const auto [begin, end] = *found;
  free_.erase(found);
  if (begin + wanted < end) {
    free_.emplace(begin + wanted, end);
  }
  fetch({begin, begin + wanted});
  return memory_.data() + begin;
}

// Fresh memory, page by page, takes 2 ms a MiB in a virtual machine, and 0.2 by the huge page. Few
// systems give shared memory huge pages by themselves; where they are asked for, the first byte of
// each has to be there already.
void SharedHeap::fetch(Range range) {
  for (size_t at = range.begin / kHugePage; at < roundUp(range.end, kHugePage) / kHugePage; ++at) {
    if (!is_fetched_[at]) {
      is_fetched_[at] = true;
      std::byte* page = memory_.data() + at * kHugePage;
      *page = std::byte{};
      // Refused where memory is in pieces: then it comes page by page.
      ::madvise(page, kHugePage, MADV_COLLAPSE);
    }
  }
}

void SharedHeap::giveBack(std::byte* block, size_t bytes) {
  if (process_.isForked()) {
    return;  // it is the parent's
  }
  const auto begin = static_cast<size_t>(block - memory_.data());
  const Range range{begin, begin + roundUp(bytes, kPage)};
  const std::lock_guard lock(mutex_);
  const Range free = addToFree(range);
  // The huge pages that it has been the last to use.
  letGo({std::max(roundUp(free.begin, kHugePage), range.begin / kHugePage * kHugePage),
         std::min(free.end / kHugePage * kHugePage, roundUp(range.end, kHugePage))});
}

SharedHeap::Range SharedHeap::addToFree(Range range) {
  auto after = free_.lower_bound(range.begin);
  if (after != free_.end() && after->first == range.end) {
    range.end = after->second;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->second == range.begin) {
      range.begin = before->first;
      before->second = range.end;
      return range;
    }
  }
  free_.emplace_hint(after, range.begin, range.end);
  return range;
}

void SharedHeap::letGo(Range range) {
  if (range.begin < range.end) {
    ::madvise(memory_.data() + range.begin, range.end - range.begin, MADV_REMOVE);
    std::fill(is_fetched_.begin() + static_cast<ptrdiff_t>(range.begin / kHugePage),
              is_fetched_.begin() + static_cast<ptrdiff_t>(range.end / kHugePage), false);
  }
}

std::optional<uint64_t> SharedHeap::placeOf(const std::byte* data, size_t bytes) const {
  const std::byte* begin = memory_.data();
  if (begin == nullptr || data < begin || data + bytes > begin + memory_.size()) {
    return std::nullopt;
  }
  return static_cast<uint64_t>(data - begin);
}

}  // namespace bluefog
