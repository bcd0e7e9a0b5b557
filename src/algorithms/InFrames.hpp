#pragma once

#include <algorithm>
#include <cstddef>

#include "transport/boards/Board.hpp"
#include "transport/operations/CollectiveOp.hpp"
#include "transport/operations/Task.hpp"

namespace bluefog {

// How many frames carry `whole` in pieces of `part`: at least one, which others look for.
inline size_t framesFor(size_t whole, size_t part) {
  return std::max((whole + part - 1) / part, size_t{1});
}
// How much of `whole` the frame has that begins at `at`.
inline size_t pieceAt(size_t at, size_t whole, size_t part) {
  return at < whole ? std::min(part, whole - at) : 0;
}

// A collective in which every rank publishes as many frames: give(i) publishes this rank's i-th,
// take(i) reads the i-th of every peer. Takes before it gives, and waits only when it can do
// neither.
template <class Give, class Take>
Task inFrames(Board& board, const CollectiveOp& op, size_t frames, Give give, Take take) {
  size_t given = 0;
  size_t taken = 0;
  const auto can_give = [&] { return given < frames && board.hasRoom(); };
  const auto can_take = [&] { return taken < given && board.hasArrivals(op); };
  while (taken < frames) {
    co_await WaitUntil([&] { return can_take() || can_give(); }, [&] { return board.lacking(op); },
                       [&] { return board.arrivals(op).missing(); });
    if (can_take()) {
      take(taken++);
      board.pop();
    } else {
      give(given++);
    }
  }
}

}  // namespace bluefog
