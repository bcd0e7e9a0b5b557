#include <algorithm>
#include <utility>

#include "algorithms/Algorithms.hpp"
#include "algorithms/ByHosts.hpp"
#include "algorithms/HostGrid.hpp"
#include "algorithms/InFrames.hpp"
#include "algorithms/Parts.hpp"
#include "algorithms/ReduceInputs.hpp"
#include "core/Reduce.hpp"
#include "transport/tuning/Tuning.hpp"

namespace bluefog {
namespace {

Task reduceScatterFlat(Board& board, const CollectiveOp& op, std::vector<const std::byte*> inputs,
                       std::vector<size_t> counts, std::byte* output) {
  const auto self = static_cast<size_t>(board.rank());
  const Parts parts(std::move(counts), width(op.signature.dtype), board.payload());
  const auto give = [&board, &op, self, parts, inputs](size_t frame) {
    size_t bytes = 0;
    for (size_t rank = 0; rank < inputs.size(); ++rank) {
      const size_t taking = parts.bytes(rank, frame);
      if (rank != self && taking > 0) {
        board.write(board.slot() + parts.place(rank), inputs[rank] + parts.begin(frame), taking);
        bytes += taking;
      }
    }
    board.publishCut(op, bytes, [&](int peer) {
      const auto rank = static_cast<size_t>(peer);
      return Board::Cut{parts.place(rank), parts.bytes(rank, frame)};
    });
  };
  const auto take = [&board, &op, self, parts, own = inputs[self], output,
                     contributions = ReduceInputs()](size_t frame) mutable {
    const size_t at = parts.begin(frame);
    const size_t bytes = parts.bytes(self, frame);
    contributions.collect(board, op, own + at, bytes, parts.place(self));
    contributions.reduce(op.signature, output + at, bytes / width(op.signature.dtype));
  };
  return inFrames(board, op, parts.frames(), give, take);
}

}  // namespace

Task reduceScatter(Board& board, Board& returns, const CollectiveOp& op,
                   std::vector<const std::byte*> inputs, std::vector<size_t> counts,
                   std::byte* output) {
  if (HostGrid::isOne(board) && canReduceByHosts(op.signature) &&
      *std::max_element(counts.begin(), counts.end()) * width(op.signature.dtype) >
          tuning::kMostSentToAllHosts) {
    return reduceScatterByHosts(board, returns, op, std::move(inputs), std::move(counts), output);
  }
  return reduceScatterFlat(board, op, std::move(inputs), std::move(counts), output);
}

}  // namespace bluefog
