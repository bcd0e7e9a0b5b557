#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

namespace bluefog {

struct Range {
  size_t begin;
  size_t end;
};

// What is free of a stretch of memory that begins at 0.
class FreeRanges {
 public:
  explicit FreeRanges(size_t bytes) : bytes_(bytes) { add({0, bytes}); }

  // The first that is large enough; nothing where none is.
  std::optional<Range> take(size_t bytes);
  // Gives back, and returns all that is now free around it.
  Range add(Range range);
  // What lies between those that are free.
  std::vector<Range> taken() const;

 private:
  size_t bytes_;
  std::map<size_t, size_t> free_;  // begins and ends; no two of them touch
};

}  // namespace bluefog
