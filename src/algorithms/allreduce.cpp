#include <algorithm>
#include <utility>

#include "algorithms/Algorithms.hpp"
#include "algorithms/Blocks.hpp"
#include "algorithms/ByHosts.hpp"
#include "algorithms/HostGrid.hpp"
#include "algorithms/ReduceInputs.hpp"
#include "algorithms/overlap.hpp"
#include "core/Reduce.hpp"
#include "transport/tuning/Tuning.hpp"

namespace bluefog {
namespace {

// Returns how many bytes a block has.
size_t blockBytes(const Board& board, size_t bytes) {
  if (!board.spansHosts()) {
    return board.payload();
  }
  const size_t least = tuning::kLeastPartBetweenHosts * static_cast<size_t>(board.size());
  return std::clamp(bytes / tuning::kLeastBlocksBetweenHosts, std::min(least, board.payload()),
                    board.payload());
}

// An InBlocks is the state of an allreduce in blocks. Each rank reduces its own part of every block
// and hands the result to all ranks, over the second board. The three steps of successive blocks
// overlap: a rank does whatever can be done, the oldest first, and waits only when nothing can.
class InBlocks {
 public:
  InBlocks(Board& board, Board& returns, const CollectiveOp& op, Spans data, size_t block)
      : board_(board),
        returns_(returns),
        op_(op),
        data_(std::move(data)),
        width_(width(op.signature.dtype)),
        stores_(storesInPlace(op.signature.bytes(), board.bytesUnderWay())),
        blocks_(op.signature.count, width_, block, board.size()) {}

  bool done() const { return collected_ == blocks_.size(); }
  bool move() {
    if (canCollect()) {
      collect(blocks_.at(collected_++));
    } else if (canReduce()) {
      reduceOwnPart(blocks_.at(reduced_++));
    } else if (canScatter()) {
      scatter(blocks_.at(scattered_++));
    } else {
      return false;
    }
    return true;
  }
  std::vector<int> missing() {
    std::vector<int> ranks = returns_.lacking(op_);
    append(ranks, board_.room().missing());
    return ranks;
  }
  // A rank that has handed out nothing may only lack what another one has not scattered.
  std::vector<int> late() {
    const std::vector<int> first =
        reduced_ < scattered_ ? board_.arrivals(op_).missing() : std::vector<int>{};
    return firstOf({first, returns_.arrivals(op_).missing()});
  }

 private:
  static size_t index(int rank) { return static_cast<size_t>(rank); }
  bool canCollect() { return collected_ < reduced_ && returns_.hasArrivals(op_); }
  bool canReduce() {
    return reduced_ < scattered_ && returns_.hasRoom() && board_.hasArrivals(op_);
  }
  bool canScatter() { return scattered_ < blocks_.size() && board_.hasRoom(); }

  // Publishes the parts of the other ranks, at their places in the block.
  void scatter(const Block& block) {
    std::byte* slot = board_.slot();
    size_t bytes = 0;
    for (int rank = 0; rank < board_.size(); ++rank) {
      if (rank != board_.rank()) {
        const size_t begin = block.partBegin(index(rank)) * width_;
        const size_t length = block.partCount(index(rank)) * width_;
        std::byte* place = slot + begin - block.begin * width_;
        data_.forEach(begin, length, [&](const Span& span, size_t at) {
          board_.write(place + at, span.data, span.bytes);
        });
        bytes += length;
      }
    }
    board_.publishCut(op_, bytes, [&](int peer) {
      return Board::Cut{(block.partBegin(index(peer)) - block.begin) * width_,
                        block.partCount(index(peer)) * width_};
    });
  }

  void reduceOwnPart(const Block& block) {
    const int self = board_.rank();
    const size_t in_block = (block.partBegin(index(self)) - block.begin) * width_;
    const size_t bytes = block.partCount(index(self)) * width_;
    std::byte* slot = returns_.slot();
    data_.forEach(block.partBegin(index(self)) * width_, bytes, [&](const Span& own, size_t at) {
      inputs_.collect(board_, op_, own.data, own.bytes, in_block + at);
      inputs_.reduce(op_.signature, own.data, own.bytes / width_);
      returns_.write(slot + at, own.data, own.bytes);
    });
    board_.pop();
    returns_.publish(op_, bytes, returns_.size() - 1);
  }

  void collect(const Block& block) {
    for (int rank = 0; rank < board_.size(); ++rank) {
      if (rank != board_.rank()) {
        const size_t bytes = block.partCount(index(rank)) * width_;
        const std::byte* result = returns_.from(rank, bytes);
        data_.forEach(block.partBegin(index(rank)) * width_, bytes,
                      [&](const Span& span, size_t at) {
                        copyBytes(span.data, result + at, span.bytes, stores_);
                      });
      }
    }
    returns_.pop();
  }

  Board& board_;
  Board& returns_;
  const CollectiveOp& op_;
  Spans data_;
  size_t width_;
  Stores stores_;  // how the result is written
  Blocks blocks_;
  size_t scattered_ = 0;
  size_t reduced_ = 0;
  size_t collected_ = 0;
  ReduceInputs inputs_;
};

Task allreduceWhole(Board& board, const CollectiveOp& op, Spans data) {
  const size_t bytes = op.signature.bytes();
  co_await board.room();
  data.forEach(0, bytes, [slot = board.slot()](const Span& span, size_t at) {
    copyBytes(slot + at, span.data, span.bytes);
  });
  board.publish(op, bytes, board.size() - 1);
  co_await board.arrivals(op);
  ReduceInputs inputs;
  data.forEach(0, bytes, [&](const Span& span, size_t at) {
    inputs.collect(board, op, span.data, span.bytes, at);
    inputs.reduce(op.signature, span.data, span.bytes / width(op.signature.dtype));
  });
  board.pop();
}

}  // namespace

Task allreduce(Board& board, Board& returns, const CollectiveOp& op, Spans data) {
  const size_t bytes = op.signature.bytes();
  if (bytes <= tuning::kReduceWhole) {
    return allreduceWhole(board, op, std::move(data));
  }
  const size_t block = blockBytes(board, bytes);
  return HostGrid::isOne(board) && canReduceByHosts(op.signature)
             ? allreduceByHosts(board, returns, op, std::move(data), block)
             : moveUntilDone(InBlocks(board, returns, op, std::move(data), block));
}

}  // namespace bluefog
