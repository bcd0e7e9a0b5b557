#include <algorithm>
#include <utility>
#include <vector>

#include "algorithms/Blocks.hpp"
#include "algorithms/ByHosts.hpp"
#include "algorithms/FrameReader.hpp"
#include "algorithms/HostGrid.hpp"
#include "algorithms/ReduceInputs.hpp"
#include "algorithms/overlap.hpp"
#include "core/Reduce.hpp"

namespace bluefog {
namespace {

// For each block a rank publishes two frames on each board, in a fixed order:
//   board 1, first:    the block, for the ranks on its host
//   board 2, first:    its share, reduced over the ranks on its host, for its counterparts
//   board 1, second:   its part of the share, reduced over all, for its counterparts
//   board 2, second:   its share, reduced over all, for the ranks on its host
// Taking one frame lets it give the next. The first frames of so many blocks go ahead of the second
// frame of a block.
constexpr size_t kAhead = 2;

// A Turn is one of the two frames of a block.
struct Turn {
  bool is_second;
  size_t block;
};

std::vector<Turn> turnsOf(size_t blocks) {
  std::vector<Turn> turns;
  turns.reserve(2 * blocks);
  for (size_t i = 0; i < blocks + kAhead; ++i) {
    if (i < blocks) {
      turns.push_back({false, i});
    }
    if (i >= kAhead) {
      turns.push_back({true, i - kAhead});
    }
  }
  return turns;
}

// An InTurns is the state of an allreduceByHosts().
class InTurns {
 public:
  InTurns(Board& board, Board& returns, const CollectiveOp& op, Spans data, size_t block)
      : board_(board),
        returns_(returns),
        op_(op),
        data_(std::move(data)),
        width_(width(op.signature.dtype)),
        grid_(board),
        blocks_(op.signature.count, width_, block, board.size()),
        turns_(turnsOf(blocks_.size())),
        taken_(board, op, board.hosts().elsewhere()) {}

  bool done() const { return collected_ == turns_.size(); }
  bool move() {
    if (canTakeReturn()) {
      takeReturn(turns_[collected_++]);
    } else if (canTake()) {
      take(turns_[taken_.turn()]);
    } else if (canBegin()) {
      hand(blocks_.at(turns_[given_].block));
      ++given_;
    } else {
      return false;
    }
    return true;
  }
  std::vector<int> missing() {
    const size_t turns = turns_.size();
    std::vector<int> ranks = slowReaders(board_, given_ < turns, returns_, taken_.turn() < turns);
    if (taken_.turn() < given_) {
      append(ranks, taken_.missing(givers()));
    }
    if (collected_ < taken_.turn()) {
      append(ranks, returns_.missing(returners()));
    }
    return ranks;
  }
  // A rank whose second frame is missing may lack another rank's first one.
  std::vector<int> late() {
    const bool is_first = taken_.turn() < given_ && !isSecond(taken_.turn());
    return firstOf({is_first ? taken_.missing(givers()) : std::vector<int>{}, missing()});
  }

 private:
  bool isSecond(size_t turn) const { return turn < turns_.size() && turns_[turn].is_second; }
  bool canBegin() { return given_ < turns_.size() && !isSecond(given_) && board_.hasRoom(); }
  bool canTake() { return taken_.turn() < given_ && returns_.hasRoom() && taken_.isHere(givers()); }
  // A rank that takes the first frames of its counterparts publishes the second frame of that block
  // on the first board, so it must be the turn of that frame.
  bool canTakeReturn() {
    return collected_ < taken_.turn() &&
           (isSecond(collected_) || (isSecond(given_) && board_.hasRoom())) &&
           returns_.hasArrivals(op_, returners());
  }
  // Each returns the ranks whose frames come next on that board.
  const std::vector<int>& givers() const {
    return isSecond(taken_.turn()) ? grid_.counterparts() : grid_.here();
  }
  const std::vector<int>& returners() const {
    return isSecond(collected_) ? grid_.here() : grid_.counterparts();
  }

  size_t first(size_t place) const { return place * grid_.hosts(); }
  size_t own() const { return first(grid_.place()) + grid_.host(); }
  size_t bytesOf(const Block& block, size_t part) const { return block.partCount(part) * width_; }
  // Returns where in the tensor the share begins that the rank in that place has of the block, in
  // bytes.
  size_t shareBegin(const Block& block, size_t place) const {
    return block.partBegin(first(place)) * width_;
  }
  size_t shareBytes(const Block& block, size_t place) const {
    return shareBegin(block, place + 1) - shareBegin(block, place);
  }

  void hand(const Block& block) {
    std::byte* slot = board_.slot();
    size_t bytes = 0;
    for (size_t place = 0; place < grid_.here().size(); ++place) {
      if (place != grid_.place()) {
        const size_t begin = shareBegin(block, place);
        const size_t length = shareBytes(block, place);
        write(board_, slot + begin - block.begin * width_, begin, length);
        bytes += length;
      }
    }
    board_.publishCut(op_, bytes, grid_.forNobody(given_ == 0));
  }

  void take(const Turn& turn) {
    const Block block = blocks_.at(turn.block);
    const size_t begin = shareBegin(block, grid_.place());
    const size_t length = shareBytes(block, grid_.place());
    if (turn.is_second) {
      for (size_t host = 0; host < grid_.hosts(); ++host) {
        if (host != grid_.host()) {
          const size_t part = first(grid_.place()) + host;
          read(board_, grid_.counterparts()[host], block.partBegin(part) * width_,
               bytesOf(block, part));
        }
      }
      taken_.pop(grid_.near());
      write(returns_, returns_.slot(), begin, length);
      returns_.publishHere(op_, length);
      return;
    }
    reduce(board_, grid_.here(), begin, length, begin - block.begin * width_, op_.signature);
    taken_.pop(grid_.here());
    write(returns_, returns_.slot(), begin, length);
    returns_.publishCut(op_, length, grid_.forCounterparts([&](size_t host) {
      const size_t part = first(grid_.place()) + host;
      return Board::Cut{block.partBegin(part) * width_ - begin, bytesOf(block, part)};
    }));
  }

  void takeReturn(const Turn& turn) {
    const Block block = blocks_.at(turn.block);
    if (turn.is_second) {
      for (size_t place = 0; place < grid_.here().size(); ++place) {
        if (place != grid_.place()) {
          read(returns_, grid_.here()[place], shareBegin(block, place), shareBytes(block, place));
        }
      }
      returns_.pop(grid_.here());
      return;
    }
    ++given_;
    const size_t begin = block.partBegin(own()) * width_;
    const size_t length = bytesOf(block, own());
    reduce(returns_, grid_.counterparts(), begin, length, begin - shareBegin(block, grid_.place()),
           withoutFactors(op_.signature));
    returns_.pop(grid_.near());
    write(board_, board_.slot(), begin, length);
    board_.publishCut(op_, length,
                      grid_.forCounterparts([&](size_t) { return Board::Cut{0, length}; }));
  }

  void reduce(Board& from, const std::vector<int>& ranks, size_t begin, size_t bytes, size_t offset,
              const Signature& what) {
    data_.forEach(begin, bytes, [&](const Span& own, size_t at) {
      inputs_.collect(from, op_, ranks, own.data, own.bytes, offset + at);
      inputs_.reduce(what, own.data, own.bytes / width_);
    });
  }
  void write(Board& to, std::byte* slot, size_t begin, size_t bytes) {
    data_.forEach(begin, bytes,
                  [&](const Span& span, size_t at) { to.write(slot + at, span.data, span.bytes); });
  }
  void read(Board& from, int rank, size_t begin, size_t bytes) {
    const std::byte* result = from.from(rank, bytes);
    data_.forEach(begin, bytes, [&](const Span& span, size_t at) {
      copyBytes(span.data, result + at, span.bytes);
    });
  }

  Board& board_;
  Board& returns_;
  const CollectiveOp& op_;
  Spans data_;
  size_t width_;
  HostGrid grid_;
  Blocks blocks_;
  std::vector<Turn> turns_;  // the same on both boards
  size_t given_ = 0;         // on the first board; on the second, as many as taken_.turn()
  FrameReader taken_;        // reads the first board
  size_t collected_ = 0;
  ReduceInputs inputs_;
};

}  // namespace

Task allreduceByHosts(Board& board, Board& returns, const CollectiveOp& op, Spans data,
                      size_t block) {
  return moveUntilDone(InTurns(board, returns, op, std::move(data), block));
}

}  // namespace bluefog
