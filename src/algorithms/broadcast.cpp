#include <algorithm>

#include "algorithms/Algorithms.hpp"
#include "core/Reduce.hpp"

namespace bluefog {
namespace {

Script broadcastFromHere(Board& board, const Op& op, const std::byte* data) {
  const size_t bytes = op.signature.bytes();
  size_t at = 0;
  bool begun = false;
  bool greeted = false;
  const auto can_give = [&] { return (!begun || at < bytes) && board.hasRoom(); };
  const auto can_greet = [&] { return !greeted && board.hasArrivals(op); };
  while (!begun || at < bytes || !greeted) {
    // The peers' frames come first: two that both think they are the root must notice before their
    // rings are full.
    co_await Until([&] { return can_greet() || can_give(); },
                   [&] { return greeted ? board.room().missing() : board.arrivals(op).missing(); });
    if (can_greet()) {
      board.pop();
      greeted = true;
    } else {
      const size_t length = std::min(board.payload(), bytes - at);
      board.write(board.slot(), data + at, length);
      board.publish(op, length, board.size() - 1);
      begun = true;
      at += length;
    }
  }
}

Script broadcastTakenIn(Board& board, const Op& op, std::byte* data) {
  const int root = op.signature.root;
  const size_t bytes = op.signature.bytes();
  co_await board.room();
  board.publish(op, 0, 0);
  co_await board.arrivals(op);
  size_t at = std::min(board.payload(), bytes);
  copyBytes(data, board.from(root, at), at);
  board.pop();
  while (at < bytes) {
    const size_t length = std::min(board.payload(), bytes - at);
    co_await board.arrival(op, root);
    copyBytes(data + at, board.from(root, length), length, storesFor(bytes));
    board.skip(root, 1);
    at += length;
  }
}

}  // namespace

Script broadcast(Board& board, const Op& op, std::byte* data) {
  return op.signature.root == board.rank() ? broadcastFromHere(board, op, data)
                                           : broadcastTakenIn(board, op, data);
}

}  // namespace bluefog
