#include "core/Reduce.hpp"
#include "algorithms/Algorithms.hpp"
#include "algorithms/InFrames.hpp"
#include "algorithms/ReduceInputs.hpp"

namespace bluefog {

Task reduce(Board& board, const CollectiveOp& op, const std::byte* input, std::byte* output) {
  const bool is_root = op.signature.root == board.rank();
  const size_t bytes = op.signature.bytes();
  const auto length = [&board, bytes](size_t frame) {
    return pieceAt(frame * board.payload(), bytes, board.payload());
  };
  const auto give = [&board, &op, input, is_root, length](size_t frame) {
    if (is_root) {
      board.publish(op, 0, 0);
      return;
    }
    board.write(board.slot(), input + frame * board.payload(), length(frame));
    board.publishCut(op, length(frame), [&](int peer) {
      return Board::Cut{0, peer == op.signature.root ? length(frame) : 0};
    });
  };
  const auto take = [&board, &op, input, output, is_root, length,
                     contributions = ReduceInputs()](size_t frame) mutable {
    if (!is_root) {
      return;
    }
    const size_t at = frame * board.payload();
    contributions.collect(board, op, input + at, length(frame), 0);
    contributions.reduce(op.signature, output + at, length(frame) / width(op.signature.dtype));
  };
  return inFrames(board, op, framesFor(bytes, board.payload()), give, take);
}

}  // namespace bluefog
