#pragma once

#include <cstddef>
#include <vector>

#include "core/Reduce.hpp"
#include "core/Spans.hpp"
#include "transport/boards/Board.hpp"
#include "transport/operations/CollectiveOp.hpp"
#include "transport/operations/Task.hpp"

namespace bluefog {

// The collectives in this header are for groups whose hosts have several ranks each, and all the
// same number (see HostGrid). Each block crosses between two hosts once, between counterparts, and
// goes on in shared memory. Arguments and results are those of the functions without "ByHosts" in
// Algorithms.hpp.

// Returns whether a reduction can be made in two steps. The mean of integer means is not the mean
// of the integers.
inline bool canReduceByHosts(const Signature& what) {
  return what.reduce != ReduceKind::kAverage || isFloating(what.dtype);
}

// The ranks of a host reduce a share each, the counterparts reduce these among themselves, and the
// ranks of a host hand each other the results. `block` counts bytes.
Task allreduceByHosts(Board& board, Board& returns, const CollectiveOp& op, Spans data,
                      size_t block);

// The ranks of a host relay to each other what they get from their counterparts.
Task allgatherByHosts(Board& board, Board& returns, const CollectiveOp& op, const std::byte* input,
                      std::vector<std::byte*> outputs, std::vector<size_t> bytes);

// Each rank reduces over its host what its counterparts are to get.
Task reduceScatterByHosts(Board& board, Board& returns, const CollectiveOp& op,
                          std::vector<const std::byte*> inputs, std::vector<size_t> counts,
                          std::byte* output);

}  // namespace bluefog
