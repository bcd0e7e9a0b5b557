#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "algorithms/InFrames.hpp"
#include "transport/memory/Ring.hpp"

namespace bluefog {

// How what each rank is to get is cut: a frame holds a piece of each, in the order of the ranks,
// and all pieces have room for as many elements.
class Parts {
 public:
  // `counts`: elements for each rank; `width`: bytes of one.
  Parts(std::vector<size_t> counts, size_t width, size_t payload)
      : counts_(std::move(counts)),
        width_(width),
        part_(std::max(payload / (counts_.size() * width) / (RingShape::kLine / width) *
                           (RingShape::kLine / width),
                       size_t{1})) {}

  size_t frames() const {
    return framesFor(*std::max_element(counts_.begin(), counts_.end()), part_);
  }
  // Bytes: of a rank's piece in that frame, where it begins in each frame, and where what the frame
  // has begins in what the rank gets.
  size_t bytes(size_t rank, size_t frame) const {
    return pieceAt(frame * part_, counts_[rank], part_) * width_;
  }
  size_t place(size_t rank) const { return rank * part_ * width_; }
  size_t begin(size_t frame) const { return frame * part_ * width_; }

 private:
  std::vector<size_t> counts_;
  size_t width_;
  size_t part_;
};

}  // namespace bluefog
