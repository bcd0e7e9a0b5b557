#pragma once

#include <cstddef>
#include <vector>

#include "core/Reduce.hpp"
#include "core/Spans.hpp"
#include "transport/boards/Board.hpp"
#include "transport/operations/CollectiveOp.hpp"
#include "transport/operations/Task.hpp"

namespace bluefog {

// Collectives where hosts have several ranks each, and all as many (HostGrid): what crosses between
// two hosts does so once, between counterparts, and goes on in shared memory. Arguments and results
// are those of the functions without "ByHosts".

// Up to so many bytes for one rank, all send to all: one exchange instead of two.
constexpr size_t kMostAtOnce = 4 * 1024;

// The mean of means is not the mean of integers.
inline bool canReduceByHosts(const Signature& what) {
  return what.reduce != ReduceKind::kAverage || isFloating(what.dtype);
}

// The ranks of a host reduce a share each, the counterparts reduce that among themselves, and the
// ranks of a host hand each other the results.
Task allreduceByHosts(Board& board, Board& returns, const CollectiveOp& op, Spans data,
                      size_t block);

Task allgatherByHosts(Board& board, Board& returns, const CollectiveOp& op, const std::byte* input,
                      std::vector<std::byte*> outputs, std::vector<size_t> bytes);

// A rank reduces over its host what its counterparts are to get.
Task reduceScatterByHosts(Board& board, Board& returns, const CollectiveOp& op,
                          std::vector<const std::byte*> inputs, std::vector<size_t> counts,
                          std::byte* output);

}  // namespace bluefog
