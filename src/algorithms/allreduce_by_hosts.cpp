#include <algorithm>
#include <utility>
#include <vector>

#include "algorithms/Blocks.hpp"
#include "algorithms/ByHosts.hpp"
#include "algorithms/Contributions.hpp"
#include "algorithms/Moves.hpp"
#include "core/Reduce.hpp"

namespace bluefog {
namespace {

// Of each block a rank publishes two frames on each board, in a fixed order:
//   board 1, first:    the block, for the ranks here
//   board 2, first:    its share, reduced over the ranks here, for its counterparts
//   board 1, second:   its part of the share, reduced over all, for its counterparts
//   board 2, second:   its share, reduced over all, for the ranks here
// Taking one gives the next. The first frames of some blocks go ahead of the second ones.
constexpr size_t kAhead = 2;

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

// They were for the ranks' own data.
Signature withoutFactors(Signature signature) {
  if (signature.reduce == ReduceKind::kPremulSum) {
    signature.reduce = ReduceKind::kSum;
  }
  return signature;
}

size_t indexOf(int rank, const std::vector<int>& ranks) {
  return static_cast<size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

class InTurns {
 public:
  InTurns(Board& board, Board& returns, const Op& op, Spans data, size_t block)
      : board_(board),
        returns_(returns),
        op_(op),
        data_(std::move(data)),
        width_(width(op.signature.dtype)),
        here_(board.hosts().here()),
        counterparts_(board.hosts().counterparts()),
        place_(indexOf(board.rank(), here_)),
        host_(indexOf(board.rank(), counterparts_)),
        blocks_(op.signature.count, width_, block, board.size()),
        turns_(turnsOf(blocks_.size())) {}

  bool done() const { return collected_ == turns_.size(); }
  bool canMove() { return canTakeReturn() || canTake() || canBegin(); }
  void move() {
    if (canTakeReturn()) {
      takeReturn(turns_[collected_++]);
    } else if (canTake()) {
      take(turns_[taken_++]);
    } else {
      hand(blocks_.at(turns_[given_++].block));
    }
  }
  std::vector<int> missing() {
    std::vector<int> ranks = returns_.lacking(op_);
    const std::vector<int> others = board_.lacking(op_);
    ranks.insert(ranks.end(), others.begin(), others.end());
    return ranks;
  }
  // Whose second frame is missing may lack another one's first.
  std::vector<int> late() {
    const bool is_first = taken_ < given_ && !turns_[taken_].is_second;
    const std::vector<int> first = is_first ? board_.arrivals(op_).missing() : std::vector<int>{};
    return first.empty() ? missing() : first;
  }

 private:
  bool isSecond(size_t turn) const { return turn < turns_.size() && turns_[turn].is_second; }
  bool canBegin() { return given_ < turns_.size() && !isSecond(given_) && board_.hasRoom(); }
  bool canTake() { return taken_ < given_ && returns_.hasRoom() && board_.hasArrivals(op_); }
  // To take a share is to give a part of it, when it is that one's turn.
  bool canTakeReturn() {
    return collected_ < taken_ &&
           (isSecond(collected_) || (isSecond(given_) && board_.hasRoom())) &&
           returns_.hasArrivals(op_);
  }

  size_t first(size_t place) const { return place * counterparts_.size(); }
  size_t own() const { return first(place_) + host_; }
  size_t bytesOf(const Block& block, size_t part) const { return block.partCount(part) * width_; }
  // In the tensor, of that rank's share of the block.
  size_t shareBegin(const Block& block, size_t place) const {
    return block.partBegin(first(place)) * width_;
  }
  size_t shareBytes(const Block& block, size_t place) const {
    return shareBegin(block, place + 1) - shareBegin(block, place);
  }

  void hand(const Block& block) {
    std::byte* slot = board_.slot();
    size_t bytes = 0;
    for (size_t place = 0; place < here_.size(); ++place) {
      if (place != place_) {
        const size_t begin = shareBegin(block, place);
        const size_t length = shareBytes(block, place);
        write(board_, slot + begin - block.begin * width_, begin, length);
        bytes += length;
      }
    }
    board_.publishCut(op_, bytes, [](int) { return Board::Cut{0, 0}; });
  }

  void take(const Turn& turn) {
    const Block block = blocks_.at(turn.block);
    const size_t begin = shareBegin(block, place_);
    const size_t length = shareBytes(block, place_);
    if (turn.is_second) {
      for (size_t host = 0; host < counterparts_.size(); ++host) {
        if (host != host_) {
          const size_t part = first(place_) + host;
          read(board_, counterparts_[host], block.partBegin(part) * width_, bytesOf(block, part));
        }
      }
      board_.pop();
      write(returns_, returns_.slot(), begin, length);
      returns_.publishCut(op_, length, [](int) { return Board::Cut{0, 0}; });
      return;
    }
    reduce(board_, here_, begin, length, begin - block.begin * width_, op_.signature);
    board_.pop();
    write(returns_, returns_.slot(), begin, length);
    returns_.publishCut(op_, length, [&](int peer) {
      const size_t host = indexOf(peer, counterparts_);
      const size_t part = first(place_) + host;
      return host == counterparts_.size()
                 ? Board::Cut{0, 0}
                 : Board::Cut{block.partBegin(part) * width_ - begin, bytesOf(block, part)};
    });
  }

  void takeReturn(const Turn& turn) {
    const Block block = blocks_.at(turn.block);
    if (turn.is_second) {
      for (size_t place = 0; place < here_.size(); ++place) {
        if (place != place_) {
          read(returns_, here_[place], shareBegin(block, place), shareBytes(block, place));
        }
      }
      returns_.pop();
      return;
    }
    ++given_;
    const size_t begin = block.partBegin(own()) * width_;
    const size_t length = bytesOf(block, own());
    reduce(returns_, counterparts_, begin, length, begin - shareBegin(block, place_),
           withoutFactors(op_.signature));
    returns_.pop();
    write(board_, board_.slot(), begin, length);
    board_.publishCut(op_, length, [&](int peer) {
      return Board::Cut{0, indexOf(peer, counterparts_) < counterparts_.size() ? length : 0};
    });
  }

  void reduce(Board& from, const std::vector<int>& ranks, size_t begin, size_t bytes, size_t offset,
              const Signature& what) {
    data_.forEach(begin, bytes, [&](const Spans::Span& own, size_t at) {
      inputs_.collect(from, op_, ranks, own.data, own.bytes, offset + at);
      inputs_.reduce(what, own.data, own.bytes / width_);
    });
  }
  void write(Board& to, std::byte* slot, size_t begin, size_t bytes) {
    data_.forEach(begin, bytes, [&](const Spans::Span& span, size_t at) {
      to.write(slot + at, span.data, span.bytes);
    });
  }
  void read(Board& from, int rank, size_t begin, size_t bytes) {
    const std::byte* result = from.from(rank, bytes);
    data_.forEach(begin, bytes, [&](const Spans::Span& span, size_t at) {
      copyBytes(span.data, result + at, span.bytes);
    });
  }

  Board& board_;
  Board& returns_;
  const Op& op_;
  Spans data_;
  size_t width_;
  const std::vector<int>& here_;
  const std::vector<int>& counterparts_;
  size_t place_;  // of this rank, here
  size_t host_;   // among the counterparts
  Blocks blocks_;
  std::vector<Turn> turns_;  // of both boards
  size_t given_ = 0;         // on the first board; on the second as many as were taken on the first
  size_t taken_ = 0;
  size_t collected_ = 0;
  Contributions inputs_;
};

}  // namespace

bool canReduceByHosts(const Board& board, const Op& op) {
  // The mean of means is not the mean of integers.
  const bool has_stages =
      op.signature.reduce != ReduceKind::kAverage || isFloating(op.signature.dtype);
  return board.spansHosts() && board.hosts().here().size() > 1 &&
         !board.hosts().counterparts().empty() && has_stages;
}

Script allreduceByHosts(Board& board, Board& returns, const Op& op, Spans data, size_t block) {
  return moveUntilDone(InTurns(board, returns, op, std::move(data), block));
}

}  // namespace bluefog
