#pragma once

#include <cstddef>
#include <vector>

#include "core/Reduce.hpp"
#include "transport/boards/Board.hpp"
#include "transport/operations/CollectiveOp.hpp"

namespace bluefog {

// Returns the signature of a second reduction, over the results of a first one. The factors were
// for the ranks' own data, and are used already.
inline Signature withoutFactors(Signature signature) {
  if (signature.reduce == ReduceKind::kPremulSum) {
    signature.reduce = ReduceKind::kSum;
  }
  return signature;
}

// ReduceInputs are what the ranks bring to a reduction, in the order of the ranks. They do not own
// the data.
//
// Thread safety: only the thread that drives the engine may use it.
class ReduceInputs {
 public:
  // Collects `bytes` bytes from every rank: this rank's from `own`, and the others' from their
  // frames, at that offset.
  void collect(Board& board, const CollectiveOp& op, const std::byte* own, size_t bytes,
               size_t offset) {
    clear();
    for (int rank = 0; rank < board.size(); ++rank) {
      add(board, op, rank, own, bytes, offset);
    }
  }
  // Collects from those ranks alone.
  void collect(Board& board, const CollectiveOp& op, const std::vector<int>& ranks,
               const std::byte* own, size_t bytes, size_t offset) {
    clear();
    for (const int rank : ranks) {
      add(board, op, rank, own, bytes, offset);
    }
  }
  // Writes the reduction of what was collected. `out` may be `own`.
  void reduce(const Signature& what, void* out, size_t count) const {
    if (what.reduce == ReduceKind::kPremulSum) {
      weightedSum(what.dtype, out, data_, factors_, 1.0, count, Stores::kCached);
    } else {
      fold(what.dtype, what.reduce, out, data_, count);
    }
  }

 private:
  void clear() {
    data_.clear();
    factors_.clear();
  }
  void add(Board& board, const CollectiveOp& op, int rank, const std::byte* own, size_t bytes,
           size_t offset) {
    const bool is_own = rank == board.rank();
    data_.push_back(is_own ? own : board.from(rank, bytes, offset));
    factors_.push_back(is_own ? op.factor : board.factorOf(rank));
  }

  std::vector<const void*> data_;
  std::vector<double> factors_;
};

}  // namespace bluefog
