#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "transport/boards/Board.hpp"
#include "transport/operations/CollectiveOp.hpp"

namespace bluefog {

// A FrameReader takes frames from a board in turns, each time from some ranks. In the first turn it
// waits for the frames of all ranks, which show what these have called. The board and the operation
// must outlive it.
//
// Thread safety: only the thread that drives the engine may use it.
class FrameReader {
 public:
  // `only_heads` are the ranks whose first frames have nothing for this rank but their heads.
  FrameReader(Board& board, const CollectiveOp& op, std::vector<int> only_heads)
      : board_(board), op_(op), only_heads_(std::move(only_heads)) {}

  size_t turn() const { return turn_; }
  bool isHere(const std::vector<int>& givers) {
    return turn_ == 0 ? board_.hasArrivals(op_) : board_.hasArrivals(op_, givers);
  }
  std::vector<int> missing(const std::vector<int>& givers) {
    return turn_ == 0 ? board_.arrivals(op_).missing() : board_.missing(givers);
  }
  void pop(const std::vector<int>& givers) {
    board_.pop(givers);
    if (turn_++ == 0) {
      board_.pop(only_heads_);
    }
  }

 private:
  Board& board_;
  const CollectiveOp& op_;
  std::vector<int> only_heads_;
  size_t turn_ = 0;
};

}  // namespace bluefog
