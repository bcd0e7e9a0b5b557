#include <algorithm>
#include <numeric>

#include "algorithms/Algorithms.hpp"
#include "algorithms/ByHosts.hpp"
#include "algorithms/HostGrid.hpp"
#include "algorithms/InFrames.hpp"
#include "core/Reduce.hpp"
#include "transport/tuning/Tuning.hpp"

namespace bluefog {

namespace {

Task allgatherFlat(Board& board, const CollectiveOp& op, const std::byte* input,
                   std::vector<std::byte*> outputs, std::vector<size_t> bytes) {
  const auto self = static_cast<size_t>(board.rank());
  const size_t longest = *std::max_element(bytes.begin(), bytes.end());
  const Stores stores = storesFor(std::accumulate(bytes.begin(), bytes.end(), size_t{0}));
  const auto give = [&board, &op, input, own = bytes[self]](size_t frame) {
    const size_t at = frame * board.payload();
    const size_t length = pieceAt(at, own, board.payload());
    board.write(board.slot(), input + at, length);
    board.publish(op, length, board.size() - 1);
  };
  const auto take = [&board, input, self, stores, outputs = std::move(outputs),
                     bytes = std::move(bytes)](size_t frame) {
    const size_t at = frame * board.payload();
    if (frame == 0 && outputs[self] != input && bytes[self] > 0) {
      copyBytes(outputs[self], input, bytes[self], stores);
    }
    for (size_t rank = 0; rank < bytes.size(); ++rank) {
      const size_t length = pieceAt(at, bytes[rank], board.payload());
      if (rank != self && length > 0) {
        copyBytes(outputs[rank] + at, board.from(static_cast<int>(rank), length), length, stores);
      }
    }
  };
  return inFrames(board, op, framesFor(longest, board.payload()), give, take);
}

}  // namespace

Task allgather(Board& board, Board& returns, const CollectiveOp& op, const std::byte* input,
               std::vector<std::byte*> outputs, std::vector<size_t> bytes) {
  if (HostGrid::isOne(board) &&
      *std::max_element(bytes.begin(), bytes.end()) > tuning::kMostSentToAllHosts) {
    return allgatherByHosts(board, returns, op, input, std::move(outputs), std::move(bytes));
  }
  return allgatherFlat(board, op, input, std::move(outputs), std::move(bytes));
}

}  // namespace bluefog
