#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

namespace bluefog {

// A Range is a stretch of memory, as two offsets in bytes; `end` lies one past the last byte.
struct Range {
  size_t begin;
  size_t end;
};

// FreeRanges keeps the free parts of a stretch of memory that begins at offset 0. At first all of
// it is free.
// Thread safety: one thread at a time.
class FreeRanges {
 public:
  explicit FreeRanges(size_t bytes) : bytes_(bytes) { add({0, bytes}); }

  // Takes `bytes` from the first free range that is large enough. Returns nothing where no range
  // is.
  std::optional<Range> take(size_t bytes);
  // Gives a range back, and returns the whole free range that it is now part of.
  Range add(Range range);
  // Returns the ranges that lie between the free ones.
  std::vector<Range> taken() const;

 private:
  size_t bytes_;
  std::map<size_t, size_t> free_;  // from begin to end; no two ranges touch
};

}  // namespace bluefog
