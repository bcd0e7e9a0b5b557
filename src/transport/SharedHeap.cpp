#include "transport/SharedHeap.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

namespace bluefog {
namespace {

constexpr size_t kPage = 4096;

size_t wholePages(size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

SharedHeap::SharedHeap(const Segment& segment, int rank)
    : memory_(segment.mapHeap(rank, PROT_READ | PROT_WRITE)) {
  if (memory_.size() > 0) {
    free_.emplace(0, memory_.size());
  }
}

std::byte* SharedHeap::take(size_t bytes) {
  const size_t wanted = wholePages(bytes);
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(free_.begin(), free_.end(),
                                  [wanted](const auto& range) { return range.second >= wanted; });
  if (found == free_.end()) {
    return nullptr;
  }
  const auto [at, size] = *found;
  free_.erase(found);
  if (size > wanted) {
    free_.emplace(at + wanted, size - wanted);
  }
  return memory_.data() + at;
}

void SharedHeap::giveBack(std::byte* block, size_t bytes) {
  if (process_.isForked()) {
    return;  // it is the parent's
  }
  auto at = static_cast<size_t>(block - memory_.data());
  size_t size = wholePages(bytes);
  ::madvise(block, size, MADV_REMOVE);
  const std::lock_guard lock(mutex_);
  auto after = free_.lower_bound(at);
  if (after != free_.end() && after->first == at + size) {
    size += after->second;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == at) {
      before->second += size;
      return;
    }
  }
  free_.emplace_hint(after, at, size);
}

std::optional<uint64_t> SharedHeap::placeOf(const std::byte* data, size_t bytes) const {
  const std::byte* begin = memory_.data();
  if (begin == nullptr || data < begin || data + bytes > begin + memory_.size()) {
    return std::nullopt;
  }
  return static_cast<uint64_t>(data - begin);
}

}  // namespace bluefog
