#include <algorithm>

#include "algorithms/Algorithms.hpp"
#include "algorithms/Contributions.hpp"
#include "core/Reduce.hpp"

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
  Contributions contributions;
  size_t given = 0;
  size_t taken = 0;
  const auto can_give = [&] { return given < frames && board.hasRoom(); };
  const auto can_take = [&] { return taken < given && board.hasArrivals(op); };
  while (taken < frames) {
    co_await Until([&] { return can_take() || can_give(); }, [&] { return board.lacking(op); },
                   [&] { return board.arrivals(op).missing(); });
    if (can_take()) {
      const size_t at = taken * part * width;
      contributions.clear();
      for (size_t rank = 0; rank < counts.size(); ++rank) {
        const int peer = static_cast<int>(rank);
        if (rank == self) {
          contributions.add(inputs[self] + at, op.factor);
        } else {
          contributions.add(board.from(peer) + self * part * width, board.factorOf(peer));
        }
      }
      contributions.reduce(op.signature, output + at, length(self, taken++));
      board.pop();
    } else {
      size_t bytes = 0;
      for (size_t rank = 0; rank < counts.size(); ++rank) {
        const size_t taking = length(rank, given) * width;
        if (rank != self && taking > 0) {
          std::byte* place = board.slot() + rank * part * width;
          copyBytes(place, inputs[rank] + given * part * width, taking,
                    board.stores(place, taking));
          bytes += taking;
        }
      }
      board.publish(op, bytes, 1);
      ++given;
    }
  }
}

}  // namespace bluefog
