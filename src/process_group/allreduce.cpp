#include <algorithm>
#include <cstring>

#include "core/Reduce.hpp"
#include "process_group/Algorithms.hpp"

namespace bluefog {
namespace {

// Up to here every rank folds everything: one exchange instead of two.
constexpr size_t kMostWhole = 16 * 1024;

// One block of the tensor, cut into a part per rank.
struct Block {
  size_t begin;  // elements
  size_t count;
  size_t part;

  size_t partBegin(int rank) const {
    return begin + std::min(count, part * static_cast<size_t>(rank));
  }
  size_t partCount(int rank) const {
    const size_t before = std::min(count, part * static_cast<size_t>(rank));
    return std::min(part, count - before);
  }
};

class Blocks {
 public:
  Blocks(size_t count, size_t element_bytes, size_t payload, int ranks)
      : count_(count),
        ranks_(static_cast<size_t>(ranks)),
        line_(RingShape::kLine / element_bytes),
        part_(std::max(payload / (ranks_ * element_bytes) / line_ * line_, size_t{1})) {}

  size_t size() const { return (count_ + part_ * ranks_ - 1) / (part_ * ranks_); }
  Block at(size_t index) const {
    const size_t begin = index * part_ * ranks_;
    const size_t count = std::min(part_ * ranks_, count_ - begin);
    const size_t even = (count + ranks_ - 1) / ranks_;
    return {begin, count, std::min(part_, (even + line_ - 1) / line_ * line_)};
  }

 private:
  size_t count_;
  size_t ranks_;
  size_t line_;  // elements of a cache line
  size_t part_;
};

// Each rank reduces its own part of every block and hands the result to all. The steps of
// successive blocks overlap, so that what a peer needs is there before it asks.
class InBlocks {
 public:
  InBlocks(Board& board, const Op& op, std::byte* data)
      : board_(board),
        op_(op),
        data_(data),
        width_(width(op.signature.dtype)),
        blocks_(op.signature.count, width_, board.payload(), board.size()) {}

  size_t size() const { return blocks_.size(); }

  // The parts of the other ranks, at their places in the block.
  void scatter(size_t index) {
    const Block block = blocks_.at(index);
    std::byte* slot = board_.slot();
    size_t bytes = 0;
    for (int rank = 0; rank < board_.size(); ++rank) {
      if (rank != board_.rank()) {
        const size_t begin = block.partBegin(rank) * width_;
        const size_t length = block.partCount(rank) * width_;
        std::memcpy(slot + begin - block.begin * width_, data_ + begin, length);
        bytes += length;
      }
    }
    board_.publish(op_, bytes, 1);
  }

  void reduceOwnPart(size_t index) {
    const Block block = blocks_.at(index);
    const int self = board_.rank();
    std::byte* own = data_ + block.partBegin(self) * width_;
    inputs_.clear();
    for (int rank = 0; rank < board_.size(); ++rank) {
      inputs_.push_back(rank == self ? own
                                     : board_.from(rank) +
                                           (block.partBegin(self) - block.begin) * width_);
    }
    fold(op_.signature.dtype, op_.signature.reduce, own, inputs_, block.partCount(self));
  }

  void handOut(size_t index) {
    const Block block = blocks_.at(index);
    const size_t bytes = block.partCount(board_.rank()) * width_;
    std::memcpy(board_.slot(), data_ + block.partBegin(board_.rank()) * width_, bytes);
    board_.publish(op_, bytes, board_.size() - 1);
  }

  void collect(size_t index) {
    const Block block = blocks_.at(index);
    for (int rank = 0; rank < board_.size(); ++rank) {
      if (rank != board_.rank()) {
        std::memcpy(data_ + block.partBegin(rank) * width_, board_.from(rank),
                    block.partCount(rank) * width_);
      }
    }
  }

 private:
  Board& board_;
  const Op& op_;
  std::byte* data_;
  size_t width_;
  Blocks blocks_;
  std::vector<const void*> inputs_;
};

Script allreduceWhole(Board& board, const Op& op, std::byte* data) {
  const size_t bytes = op.signature.bytes();
  co_await board.room();
  std::memcpy(board.slot(), data, bytes);
  board.publish(op, bytes, board.size() - 1);
  co_await board.arrivals(op);
  std::vector<const void*> inputs;
  inputs.reserve(static_cast<size_t>(board.size()));
  for (int rank = 0; rank < board.size(); ++rank) {
    inputs.push_back(rank == board.rank() ? data : board.from(rank));
  }
  fold(op.signature.dtype, op.signature.reduce, data, inputs, op.signature.count);
  board.pop();
}

Script allreduceInBlocks(Board& board, const Op& op, std::byte* data) {
  InBlocks blocks(board, op, data);
  const size_t n = blocks.size();
  for (size_t step = 0; step < n + 2 * kLag; ++step) {
    if (step < n) {
      co_await board.room();
      blocks.scatter(step);
    }
    if (step >= kLag && step - kLag < n) {
      co_await board.arrivals(op);
      blocks.reduceOwnPart(step - kLag);
      board.pop();
      co_await board.room();
      blocks.handOut(step - kLag);
    }
    if (step >= 2 * kLag) {
      co_await board.arrivals(op);
      blocks.collect(step - 2 * kLag);
      board.pop();
    }
  }
}

}  // namespace

Script allreduce(Board& board, const Op& op, std::byte* data) {
  return op.signature.bytes() <= kMostWhole ? allreduceWhole(board, op, data)
                                            : allreduceInBlocks(board, op, data);
}

}  // namespace bluefog
