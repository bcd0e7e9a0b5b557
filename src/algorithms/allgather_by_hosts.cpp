#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "algorithms/ByHosts.hpp"
#include "algorithms/FrameReader.hpp"
#include "algorithms/HostGrid.hpp"
#include "algorithms/InFrames.hpp"
#include "algorithms/overlap.hpp"
#include "core/Reduce.hpp"

namespace bluefog {
namespace {

// A Relayed is the state of an allgatherByHosts(). On the first board a rank publishes its own
// frames, for the ranks on its host and for its counterparts. On the second board it relays to the
// ranks on its host what it gets from its counterparts: for each frame of its own, one from each.
class Relayed {
 public:
  Relayed(Board& board, Board& returns, const CollectiveOp& op, const std::byte* input,
          std::vector<std::byte*> outputs, std::vector<size_t> bytes)
      : board_(board),
        returns_(returns),
        op_(op),
        input_(input),
        outputs_(std::move(outputs)),
        bytes_(std::move(bytes)),
        stores_(storesFor(std::accumulate(bytes_.begin(), bytes_.end(), size_t{0}))),
        grid_(board),
        frames_(framesFor(*std::max_element(bytes_.begin(), bytes_.end()), board.payload())),
        taken_(board, op, grid_.far()) {}

  bool done() const { return taken_.turn() == frames_ && collected_ == relays(); }
  bool move() {
    if (canCollect()) {
      collect();
    } else if (canRelay()) {
      relay();
    } else if (canTake()) {
      take();
    } else if (canGive()) {
      give();
    } else {
      return false;
    }
    return true;
  }
  std::vector<int> missing() {
    std::vector<int> ranks = slow();
    append(ranks, lacking());
    if (collected_ < relays()) {
      append(ranks, returns_.missing(grid_.here()));
    }
    return ranks;
  }
  // A rank that has relayed nothing may only lack what it is to relay.
  std::vector<int> late() { return firstOf({lacking(), slow(), returns_.missing(grid_.here())}); }

 private:
  static size_t index(int rank) { return static_cast<size_t>(rank); }
  size_t others() const { return grid_.hosts() - 1; }
  size_t relays() const { return frames_ * others(); }
  // The relay with this number carries that frame of a counterpart on that host.
  size_t frameOf(size_t relay) const { return relay / others(); }
  size_t hostOf(size_t relay) const {
    const size_t host = relay % others();
    return host < grid_.host() ? host : host + 1;
  }
  int counterpart(size_t relay) const { return grid_.counterparts()[hostOf(relay)]; }
  size_t length(int rank, size_t frame) const {
    return pieceAt(frame * board_.payload(), bytes_[index(rank)], board_.payload());
  }

  // Returns the ranks whose own frames are missing.
  std::vector<int> lacking() {
    std::vector<int> ranks;
    if (taken_.turn() < given_) {
      append(ranks, taken_.missing(grid_.here()));
    }
    if (taken_.turn() > 0 && relayed_ < relays()) {
      append(ranks, board_.missing({counterpart(relayed_)}));
    }
    return ranks;
  }
  std::vector<int> slow() {
    return slowReaders(board_, given_ < frames_, returns_, relayed_ < relays());
  }

  bool canGive() { return given_ < frames_ && board_.hasRoom(); }
  bool canTake() { return taken_.turn() < given_ && taken_.isHere(grid_.here()); }
  bool canRelay() {
    return frameOf(relayed_) < taken_.turn() && returns_.hasRoom() &&
           board_.hasArrival(op_, counterpart(relayed_));
  }
  bool canCollect() { return collected_ < relayed_ && returns_.hasArrivals(op_, grid_.here()); }

  void give() {
    const size_t bytes = length(board_.rank(), given_);
    board_.write(board_.slot(), input_ + given_ * board_.payload(), bytes);
    const auto takers = static_cast<int>(grid_.near().size()) - 1;
    board_.publishCut(
        op_, bytes,
        grid_.forCounterparts([&](size_t) { return Board::Cut{0, bytes}; }, given_ == 0), takers);
    ++given_;
  }
  void take() {
    const size_t own = index(board_.rank());
    if (taken_.turn() == 0 && outputs_[own] != input_ && bytes_[own] > 0) {
      copyBytes(outputs_[own], input_, bytes_[own], stores_);
    }
    for (const int rank : grid_.here()) {
      read(board_, rank, rank, taken_.turn());
    }
    taken_.pop(grid_.here());
  }
  void relay() {
    const int rank = counterpart(relayed_);
    const size_t bytes = length(rank, frameOf(relayed_));
    const std::byte* piece = board_.from(rank, bytes);
    returns_.write(returns_.slot(), piece, bytes);
    place(rank, frameOf(relayed_), piece, bytes);
    board_.skip(rank, 1);
    returns_.publishHere(op_, bytes);
    ++relayed_;
  }
  void collect() {
    for (size_t place = 0; place < grid_.here().size(); ++place) {
      read(returns_, grid_.here()[place], grid_.at(hostOf(collected_), place), frameOf(collected_));
    }
    returns_.pop(grid_.here());
    ++collected_;
  }

  // Copies a frame that `giver` has published: it carries that frame of what `rank` gives.
  void read(Board& from, int giver, int rank, size_t frame) {
    const size_t bytes = length(rank, frame);
    if (giver != board_.rank() && bytes > 0) {
      place(rank, frame, from.from(giver, bytes), bytes);
    }
  }
  void place(int rank, size_t frame, const std::byte* piece, size_t bytes) {
    copyBytes(outputs_[index(rank)] + frame * board_.payload(), piece, bytes, stores_);
  }

  Board& board_;
  Board& returns_;
  const CollectiveOp& op_;
  const std::byte* input_;
  std::vector<std::byte*> outputs_;
  std::vector<size_t> bytes_;
  Stores stores_;
  HostGrid grid_;
  size_t frames_;
  size_t given_ = 0;
  FrameReader taken_;  // reads the ranks on this host
  size_t relayed_ = 0;
  size_t collected_ = 0;
};

}  // namespace

Task allgatherByHosts(Board& board, Board& returns, const CollectiveOp& op, const std::byte* input,
                      std::vector<std::byte*> outputs, std::vector<size_t> bytes) {
  return moveUntilDone(Relayed(board, returns, op, input, std::move(outputs), std::move(bytes)));
}

}  // namespace bluefog
