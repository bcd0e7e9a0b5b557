#include <algorithm>
#include <cstddef>
#include <vector>

#include "algorithms/Algorithms.hpp"
#include "algorithms/ByHosts.hpp"
#include "core/Reduce.hpp"
#include "transport/tuning/Tuning.hpp"

namespace bluefog {
namespace {

// A Route says from whom a rank gets the frames of a broadcast, and to whom it sends them. A small
// broadcast goes from the root to every rank. In a larger one the first rank of each host without
// the root gets what the root sends, and relays it over the second board to the ranks of its host.
// Where there are frames enough to be under way on all links at once, the hosts form a chain: each
// first rank relays to the first rank of the next host, and the root sends to the first one of the
// chain alone. The board must outlive the route.
class Route {
 public:
  Route(const Board& board, const CollectiveOp& op)
      : rank_(board.rank()),
        root_(op.signature.root),
        all_(board.hosts().all()),
        here_(board.hosts().here()) {
    bool is_any_shared = false;
    for (const std::vector<int>& ranks : all_) {
      if (std::find(ranks.begin(), ranks.end(), root_) == ranks.end()) {
        firsts_.push_back(ranks.front());
        is_any_shared |= ranks.size() > 1;
      }
    }
    const size_t bytes = op.signature.bytes();
    is_chain_ = firsts_.size() > 1 && bytes > board.payload();
    has_relays_ = is_chain_ || (is_any_shared && bytes > tuning::kMostSentToAllHosts);
    place_ = std::find(firsts_.begin(), firsts_.end(), here_.front()) - firsts_.begin();
  }

  // Returns whether a rank on another host gets the root's frames, and not a relay's.
  bool isRootsTo(int peer) const {
    const auto end = is_chain_ ? firsts_.begin() + 1 : firsts_.end();
    return !has_relays_ || std::find(firsts_.begin(), end, peer) != end;
  }
  // Returns how many ranks take this rank's frames, where it is the root or a relay.
  int takers() const {
    int taking = static_cast<int>(here_.size()) - 1;
    for (const std::vector<int>& ranks : all_) {
      for (const int rank : ranks) {
        const bool is_elsewhere = ranks.front() != here_.front();
        taking += is_elsewhere && (rank_ == root_ ? isRootsTo(rank) : isRelaysTo(rank)) ? 1 : 0;
      }
    }
    return taking;
  }
  bool isRelaysTo(int peer) const { return hasNext() && peer == firsts_[index() + 1]; }
  // Returns the rank from which this one gets its frames.
  int giver() const {
    if (!has_relays_ || !isBeyond()) {
      return root_;
    }
    if (here_.front() != rank_) {
      return here_.front();
    }
    return is_chain_ && place_ > 0 ? firsts_[index() - 1] : root_;
  }
  bool isRelay() const {
    return has_relays_ && isBeyond() && here_.front() == rank_ && (here_.size() > 1 || hasNext());
  }

 private:
  size_t index() const { return static_cast<size_t>(place_); }
  bool isBeyond() const { return index() < firsts_.size(); }
  bool hasNext() const { return is_chain_ && index() + 1 < firsts_.size(); }

  int rank_;
  int root_;
  const std::vector<std::vector<int>>& all_;
  const std::vector<int>& here_;
  std::vector<int> firsts_;   // the first rank of each host without the root
  std::ptrdiff_t place_ = 0;  // where in `firsts_` this host's first rank is
  bool is_chain_ = false;
  bool has_relays_ = false;
};

Task broadcastFromHere(Board& board, const CollectiveOp& op, const std::byte* data) {
  const Route route(board, op);
  const int takers = route.takers();
  const size_t bytes = op.signature.bytes();
  size_t at = 0;
  bool begun = false;
  bool greeted = false;
  const auto can_give = [&] { return (!begun || at < bytes) && board.hasRoom(); };
  const auto can_greet = [&] { return !greeted && board.hasArrivals(op); };
  while (!begun || at < bytes || !greeted) {
    // The peers' frames are taken first: two ranks that both think they are the root must notice
    // before their rings are full.
    co_await WaitUntil(
        [&] { return can_greet() || can_give(); },
        [&] { return greeted ? board.room().missing() : board.arrivals(op).missing(); });
    if (can_greet()) {
      board.pop();
      greeted = true;
    } else {
      const size_t length = std::min(board.payload(), bytes - at);
      board.write(board.slot(), data + at, length);
      board.publishCut(
          op, length,
          [&](int peer) {
            return route.isRootsTo(peer) ? Board::Cut{0, length} : Board::headIf(!begun);
          },
          takers);
      begun = true;
      at += length;
    }
  }
}

// Receives a broadcast frame by frame, from the root or from the rank that relays it.
Task broadcastTakenIn(Board& board, Board& returns, const CollectiveOp& op, std::byte* data) {
  const Route route(board, op);
  const bool is_relay = route.isRelay();
  const int takers = is_relay ? route.takers() : 0;
  const size_t bytes = op.signature.bytes();
  co_await board.room();
  board.publish(op, 0, 0);
  co_await board.arrivals(op);
  const int root = op.signature.root;
  const int giver = route.giver();
  Board& from = giver == root ? board : returns;
  for (int peer = 0; peer < board.size(); ++peer) {
    if (peer != board.rank() && (peer != giver || giver != root)) {
      board.skip(peer, 1);
    }
  }
  size_t at = 0;
  do {
    const size_t length = std::min(board.payload(), bytes - at);
    // A timeout blames the root, too: a relay may only lack what the root is to send.
    co_await WaitUntil(
        [&] { return from.hasArrival(op, giver); }, [&] { return std::vector<int>{giver}; },
        [&] { return giver == root ? std::vector{root} : std::vector{giver, root}; });
    const std::byte* piece = from.from(giver, length);
    if (is_relay) {
      co_await returns.room();
      returns.write(returns.slot(), piece, length);
      returns.publishCut(
          op, length,
          [&](int peer) {
            return route.isRelaysTo(peer) ? Board::Cut{0, length} : Board::headIf(false);
          },
          takers);
    }
    copyBytes(data + at, piece, length, storesFor(bytes));
    from.skip(giver, 1);
    at += length;
  } while (at < bytes);
}

}  // namespace

Task broadcast(Board& board, Board& returns, const CollectiveOp& op, std::byte* data) {
  return op.signature.root == board.rank() ? broadcastFromHere(board, op, data)
                                           : broadcastTakenIn(board, returns, op, data);
}

}  // namespace bluefog
