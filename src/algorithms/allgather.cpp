#include <algorithm>
#include <numeric>

#include "algorithms/Algorithms.hpp"
#include "algorithms/InFrames.hpp"
#include "core/Reduce.hpp"

namespace bluefog {
namespace {

size_t chunk(size_t bytes, size_t at, size_t payload) {
  return at < bytes ? std::min(payload, bytes - at) : 0;
}

}  // namespace

Script allgather(Board& board, const Op& op, const std::byte* input,
                 std::vector<std::byte*> outputs, std::vector<size_t> bytes) {
  const auto self = static_cast<size_t>(board.rank());
  const size_t longest = *std::max_element(bytes.begin(), bytes.end());
  const size_t frames = std::max((longest + board.payload() - 1) / board.payload(), size_t{1});
  const Stores stores = storesFor(std::accumulate(bytes.begin(), bytes.end(), size_t{0}));
  const auto give = [&board, &op, input, own = bytes[self]](size_t frame) {
    const size_t at = frame * board.payload();
    const size_t length = chunk(own, at, board.payload());
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
      const size_t length = chunk(bytes[rank], at, board.payload());
      if (rank != self && length > 0) {
        copyBytes(outputs[rank] + at, board.from(static_cast<int>(rank), length), length, stores);
      }
    }
  };
  return inFrames(board, op, frames, give, take);
}

}  // namespace bluefog
