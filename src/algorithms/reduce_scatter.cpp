#include <algorithm>

#include "algorithms/Algorithms.hpp"
#include "algorithms/Contributions.hpp"
#include "algorithms/InFrames.hpp"
#include "core/Reduce.hpp"

namespace bluefog {
namespace {

// How the ranks' parts are cut: a frame holds as many elements of each, in the order of the ranks.
struct Cut {
  std::vector<size_t> counts;
  size_t part;

  size_t length(size_t rank, size_t frame) const {
    return pieceAt(frame * part, counts[rank], part);
  }
  size_t frames() const { return framesFor(*std::max_element(counts.begin(), counts.end()), part); }
};

}  // namespace

Script reduceScatter(Board& board, const Op& op, std::vector<const std::byte*> inputs,
                     std::vector<size_t> counts, std::byte* output) {
  const auto self = static_cast<size_t>(board.rank());
  const size_t width = bluefog::width(op.signature.dtype);
  const size_t line = RingShape::kLine / width;
  const size_t part = std::max(board.payload() / (counts.size() * width) / line * line, size_t{1});
  const Cut cut{std::move(counts), part};
  const auto give = [&board, &op, self, width, cut, inputs](size_t frame) {
    size_t bytes = 0;
    for (size_t rank = 0; rank < inputs.size(); ++rank) {
      const size_t taking = cut.length(rank, frame) * width;
      if (rank != self && taking > 0) {
        board.write(board.slot() + rank * cut.part * width, inputs[rank] + frame * cut.part * width,
                    taking);
        bytes += taking;
      }
    }
    board.publishCut(op, bytes, [&](int peer) {
      const auto rank = static_cast<size_t>(peer);
      return Board::Cut{rank * cut.part * width, cut.length(rank, frame) * width};
    });
  };
  const auto take = [&board, &op, self, width, cut, own = inputs[self], output,
                     contributions = Contributions()](size_t frame) mutable {
    const size_t at = frame * cut.part * width;
    const size_t count = cut.length(self, frame);
    contributions.collect(board, op, own + at, count * width, self * cut.part * width);
    contributions.reduce(op.signature, output + at, count);
  };
  return inFrames(board, op, cut.frames(), give, take);
}

}  // namespace bluefog
