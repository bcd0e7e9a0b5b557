#include <algorithm>
#include <numeric>

#include "algorithms/Algorithms.hpp"
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
  if (outputs[self] != input && bytes[self] > 0) {
    copyBytes(outputs[self], input, bytes[self]);
  }
  const Stores stores = storesFor(std::accumulate(bytes.begin(), bytes.end(), size_t{0}));
  size_t given = 0;
  size_t taken = 0;
  const auto can_give = [&] { return given < frames && board.hasRoom(); };
  const auto can_take = [&] { return taken < given && board.hasArrivals(op); };
  while (taken < frames) {
    co_await Until([&] { return can_take() || can_give(); }, [&] { return board.lacking(op); },
                   [&] { return board.arrivals(op).missing(); });
    if (can_take()) {
      const size_t at = taken++ * board.payload();
      for (size_t rank = 0; rank < bytes.size(); ++rank) {
        const size_t length = chunk(bytes[rank], at, board.payload());
        if (rank != self && length > 0) {
          copyBytes(outputs[rank] + at, board.from(static_cast<int>(rank)), length, stores);
        }
      }
      board.pop();
    } else {
      const size_t at = given++ * board.payload();
      const size_t length = chunk(bytes[self], at, board.payload());
      std::byte* slot = board.slot();
      copyBytes(slot, input + at, length, board.stores(slot, length));
      board.publish(op, length, board.size() - 1);
    }
  }
}

}  // namespace bluefog
