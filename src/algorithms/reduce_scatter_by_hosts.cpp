#include <utility>
#include <vector>

#include "algorithms/ByHosts.hpp"
#include "algorithms/FrameReader.hpp"
#include "algorithms/HostGrid.hpp"
#include "algorithms/Parts.hpp"
#include "algorithms/ReduceInputs.hpp"
#include "algorithms/overlap.hpp"

namespace bluefog {
namespace {

// A rank's frame on the first board is for the ranks here; the one on the second, what they have
// for its counterparts, reduced, for these.
class InStages {
 public:
  InStages(Board& board, Board& returns, const CollectiveOp& op,
           std::vector<const std::byte*> inputs, std::vector<size_t> counts, std::byte* output)
      : board_(board),
        returns_(returns),
        op_(op),
        inputs_(std::move(inputs)),
        output_(output),
        width_(width(op.signature.dtype)),
        self_(index(board.rank())),
        grid_(board),
        parts_(std::move(counts), width_, board.payload()),
        taken_(board, op, board.hosts().elsewhere()) {}

  bool done() const { return collected_ == parts_.frames(); }
  bool move() {
    if (canCollect()) {
      collect();
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
    append(ranks, returns_.missing(grid_.counterparts()));
    return ranks;
  }
  // Whose reduction is missing may only lack what another one gives.
  std::vector<int> late() {
    return firstOf({lacking(), slow(), returns_.missing(grid_.counterparts())});
  }

 private:
  static size_t index(int rank) { return static_cast<size_t>(rank); }
  std::vector<int> lacking() {
    return taken_.turn() < given_ ? taken_.missing(grid_.here()) : std::vector<int>{};
  }
  std::vector<int> slow() {
    const size_t frames = parts_.frames();
    return slowReaders(board_, given_ < frames, returns_, taken_.turn() < frames);
  }
  bool canGive() { return given_ < parts_.frames() && board_.hasRoom(); }
  bool canTake() {
    return taken_.turn() < given_ && returns_.hasRoom() && taken_.isHere(grid_.here());
  }
  bool canCollect() {
    return collected_ < taken_.turn() && returns_.hasArrivals(op_, grid_.counterparts());
  }

  void give() {
    size_t bytes = 0;
    for (size_t host = 0; host < grid_.hosts(); ++host) {
      for (size_t place = 0; place < grid_.here().size(); ++place) {
        const size_t rank = index(grid_.at(host, place));
        const size_t taking = place == grid_.place() ? 0 : parts_.bytes(rank, given_);
        if (taking > 0) {
          board_.write(board_.slot() + parts_.place(rank), inputs_[rank] + parts_.begin(given_),
                       taking);
          bytes += taking;
        }
      }
    }
    board_.publishCut(op_, bytes, grid_.forNobody(given_ == 0));
    ++given_;
  }

  void take() {
    const size_t frame = taken_.turn();
    size_t bytes = 0;
    for (const int counterpart : grid_.counterparts()) {
      const size_t rank = index(counterpart);
      const size_t length = parts_.bytes(rank, frame);
      const std::byte* own = inputs_[rank] + parts_.begin(frame);
      std::byte* reduced = output_ + parts_.begin(frame);
      if (rank != self_) {
        reduced_.resize(length);
        reduced = reduced_.data();
      }
      contributions_.collect(board_, op_, grid_.here(), own, length, parts_.place(rank));
      contributions_.reduce(op_.signature, reduced, length / width_);
      if (rank != self_) {
        returns_.write(returns_.slot() + parts_.place(rank), reduced, length);
        bytes += length;
      }
    }
    taken_.pop(grid_.here());
    returns_.publishCut(op_, bytes, grid_.forCounterparts([&](size_t host) {
      const size_t rank = index(grid_.counterparts()[host]);
      return Board::Cut{parts_.place(rank), parts_.bytes(rank, frame)};
    }));
  }

  void collect() {
    const size_t length = parts_.bytes(self_, collected_);
    std::byte* own = output_ + parts_.begin(collected_);
    contributions_.collect(returns_, op_, grid_.counterparts(), own, length, parts_.place(self_));
    contributions_.reduce(withoutFactors(op_.signature), own, length / width_);
    returns_.pop(grid_.near());
    ++collected_;
  }

  Board& board_;
  Board& returns_;
  const CollectiveOp& op_;
  std::vector<const std::byte*> inputs_;
  std::byte* output_;
  size_t width_;
  size_t self_;
  HostGrid grid_;
  Parts parts_;
  size_t given_ = 0;
  FrameReader taken_;
  size_t collected_ = 0;
  std::vector<std::byte> reduced_;  // for one counterpart
  ReduceInputs contributions_;
};

}  // namespace

Task reduceScatterByHosts(Board& board, Board& returns, const CollectiveOp& op,
                          std::vector<const std::byte*> inputs, std::vector<size_t> counts,
                          std::byte* output) {
  return moveUntilDone(InStages(board, returns, op, std::move(inputs), std::move(counts), output));
}

}  // namespace bluefog
