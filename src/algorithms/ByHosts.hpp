#pragma once

#include "algorithms/Spans.hpp"
#include "transport/Board.hpp"
#include "transport/Op.hpp"
#include "transport/Script.hpp"

namespace bluefog {

// all_reduce where hosts have several ranks each, and all as many: the ranks of a host reduce a
// share each, its counterparts on the other hosts reduce that among themselves, and the ranks of
// a host hand each other the results. So a host sends no more than one rank would.
bool canReduceByHosts(const Board& board, const Op& op);
Script allreduceByHosts(Board& board, Board& returns, const Op& op, Spans data, size_t block);

}  // namespace bluefog
