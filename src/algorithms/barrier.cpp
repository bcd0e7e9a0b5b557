#include "algorithms/Algorithms.hpp"

namespace bluefog {

Task barrier(Board& board, const CollectiveOp& op) {
  co_await board.room();
  board.publish(op, 0, 0);
  co_await board.arrivals(op);
  board.pop();
}

}  // namespace bluefog
