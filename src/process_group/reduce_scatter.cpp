#include <algorithm>
#include <cstring>

#include "core/Reduce.hpp"
#include "process_group/Algorithms.hpp"

namespace bluefog {

Script reduceScatter(Board& board, const Op& op, std::vector<const std::byte*> inputs,
                     std::vector<size_t> counts, std::byte* output) {
  const auto self = static_cast<size_t>(board.rank());
  const size_t width = bluefog::width(op.signature.dtype);
  const size_t line = RingShape::kLine / width;
  // A frame holds as many elements of each rank's part, in the order of the ranks.
  const size_t part = std::max(board.payload() / (counts.size() * width) / line * line, size_t{1});
  const size_t longest = *std::max_element(counts.begin(), counts.end());
  const size_t frames = std::max((longest + part - 1) / part, size_t{1});
  const auto length = [&](size_t rank, size_t frame) {
    const size_t at = frame * part;
    return at < counts[rank] ? std::min(part, counts[rank] - at) : 0;
  };
  std::vector<const void*> folded(counts.size());
  for (size_t step = 0; step < frames + kLag; ++step) {
    if (step < frames) {
      co_await board.room();
      size_t bytes = 0;
      for (size_t rank = 0; rank < counts.size(); ++rank) {
        if (rank != self && length(rank, step) > 0) {
          std::memcpy(board.slot() + rank * part * width, inputs[rank] + step * part * width,
                      length(rank, step) * width);
          bytes += length(rank, step) * width;
        }
      }
      board.publish(op, bytes, 1);
    }
    if (step >= kLag) {
      const size_t frame = step - kLag;
      co_await board.arrivals(op);
      for (size_t rank = 0; rank < counts.size(); ++rank) {
        folded[rank] = rank == self
                           ? inputs[self] + frame * part * width
                           : board.from(static_cast<int>(rank)) + self * part * width;
      }
      fold(op.signature.dtype, op.signature.reduce, output + frame * part * width, folded,
           length(self, frame));
      board.pop();
    }
  }
}

}  // namespace bluefog
