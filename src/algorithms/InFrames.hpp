#pragma once

#include <algorithm>
#include <cstddef>

#include "transport/boards/Board.hpp"
#include "transport/operations/CollectiveOp.hpp"
#include "transport/operations/Task.hpp"

namespace bluefog {

// Returns how many frames carry `whole` in pieces of `part`. There is always one, for which the
// other ranks wait.
inline size_t framesFor(size_t whole, size_t part) {
  return std::max((whole + part - 1) / part, size_t{1});
}
// Returns how much of `whole` is in the frame that begins at `at`.
inline size_t pieceAt(size_t at, size_t whole, size_t part) {
  return at < whole ? std::min(part, whole - at) : 0;
}

// Runs a collective in which all ranks publish the same number of frames: give(i) publishes this
// rank's i-th frame, and take(i) reads the i-th frame of every peer. It takes before it gives, and
// waits only when it can do neither.
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
