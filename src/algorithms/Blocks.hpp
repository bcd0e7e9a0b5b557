#pragma once

#include <algorithm>
#include <cstddef>

#include "transport/memory/Ring.hpp"

namespace bluefog {

// A Block is a stretch of a tensor, cut into one part for each rank. All numbers count elements.
struct Block {
  size_t begin;
  size_t count;
  size_t part;

  size_t partBegin(size_t index) const { return begin + std::min(count, part * index); }
  size_t partCount(size_t index) const {
    const size_t before = std::min(count, part * index);
    return std::min(part, count - before);
  }
};

// Blocks cut a tensor into blocks whose parts fit a board's frame together. Parts begin at cache
// lines.
//
// Thread safety: it does not change; any thread may read it.
class Blocks {
 public:
  Blocks(size_t count, size_t element_bytes, size_t payload, int ranks)
      : count_(count),
        ranks_(static_cast<size_t>(ranks)),
        line_(RingShape::kLine / element_bytes),
        part_(std::max(payload / (ranks_ * element_bytes) / line_ * line_, size_t{1})) {}

  size_t size() const { return (count_ + part_ * ranks_ - 1) / (part_ * ranks_); }
  Block at(size_t index) const {
    const size_t begin = index * part_ * ranks_;
    const size_t count = std::min(part_ * ranks_, count_ - begin);
    const size_t even = (count + ranks_ - 1) / ranks_;
    return {begin, count, std::min(part_, (even + line_ - 1) / line_ * line_)};
  }

 private:
  size_t count_;
  size_t ranks_;
  size_t line_;  // the elements of a cache line
  size_t part_;
};

}  // namespace bluefog
