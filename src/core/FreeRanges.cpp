#include "core/FreeRanges.hpp"

#include <algorithm>
#include <iterator>

namespace bluefog {

std::optional<Range> FreeRanges::take(size_t bytes) {
  const auto found = std::find_if(free_.begin(), free_.end(), [bytes](const auto& range) {
    return range.second - range.first >= bytes;
  });
  if (found == free_.end()) {
    return std::nullopt;
  }
  const auto [begin, end] = *found;
  free_.erase(found);
  if (begin + bytes < end) {
    free_.emplace(begin + bytes, end);
  }
  return Range{begin, begin + bytes};
}

Range FreeRanges::add(Range range) {
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

std::vector<Range> FreeRanges::taken() const {
  std::vector<Range> taken;
  size_t at = 0;
  const auto add = [&](size_t begin, size_t end) {
    if (at < begin) {
      taken.push_back({at, begin});
    }
    at = end;
  };
  for (const auto& [begin, end] : free_) {
    add(begin, end);
  }
  add(bytes_, bytes_);
  return taken;
}

}  // namespace bluefog
