#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "algorithms/InFrames.hpp"
#include "transport/memory/Ring.hpp"

namespace bluefog {

// Parts cut what each rank is to get into frames. A frame holds one piece for each rank, in the
// order of the ranks, and has the same room for each piece.
//
// Thread safety: it does not change; any thread may read it.
class Parts {
 public:
  // `counts` has the number of elements for each rank; an element has `width` bytes.
  Parts(std::vector<size_t> counts, size_t width, size_t payload)
      : counts_(std::move(counts)),
        width_(width),
        part_(std::max(payload / (counts_.size() * width) / (RingShape::kLine / width) *
                           (RingShape::kLine / width),
                       size_t{1})) {}

  size_t frames() const {
    return framesFor(*std::max_element(counts_.begin(), counts_.end()), part_);
  }
  // Returns the bytes of a rank's piece in that frame.
  size_t bytes(size_t rank, size_t frame) const {
    return pieceAt(frame * part_, counts_[rank], part_) * width_;
  }
  // Returns where a rank's piece begins in every frame, in bytes.
  size_t place(size_t rank) const { return rank * part_ * width_; }
  // Returns where the pieces of that frame begin in what the ranks get, in bytes.
  size_t begin(size_t frame) const { return frame * part_ * width_; }

 private:
  std::vector<size_t> counts_;
  size_t width_;
  size_t part_;
};

}  // namespace bluefog
