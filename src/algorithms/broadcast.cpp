#include <algorithm>
#include <utility>
#include <vector>

#include "algorithms/Algorithms.hpp"
#include "algorithms/ByHosts.hpp"
#include "core/Reduce.hpp"

namespace bluefog {
namespace {

// Where other hosts have several ranks, the first one of each gets what the root sends, and relays
// it to the others there, over the second board.
class Route {
 public:
  Route(const Board& board, const Op& op) : rank_(board.rank()), here_(board.hosts().here()) {
    for (const std::vector<int>& ranks : board.hosts().all()) {
      const bool has_root = contains(ranks, op.signature.root);
      has_relays_ |= !has_root && ranks.size() > 1 && op.signature.bytes() > kMostAtOnce;
      if (!has_root) {
        firsts_.push_back(ranks.front());
      }
    }
  }

  // Whether the root's frames go to that rank elsewhere.
  bool leadsTo(int peer) const { return !has_relays_ || contains(firsts_, peer); }
  // Whether this rank relays them, or gets them from the one that does: the first one here.
  bool isRelay() const { return isBeyond() && here_.size() > 1 && relay() == rank_; }
  bool isRelayed() const { return isBeyond() && relay() != rank_; }
  int relay() const { return here_.front(); }

 private:
  static bool contains(const std::vector<int>& ranks, int rank) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  }
  bool isBeyond() const { return has_relays_ && contains(firsts_, relay()); }

  int rank_;
  const std::vector<int>& here_;
  std::vector<int> firsts_;  // of the hosts without the root
  bool has_relays_ = false;
};

Script broadcastFromHere(Board& board, const Op& op, const std::byte* data) {
  const Route route(board, op);
  const size_t bytes = op.signature.bytes();
  size_t at = 0;
  bool begun = false;
  bool greeted = false;
  const auto can_give = [&] { return (!begun || at < bytes) && board.hasRoom(); };
  const auto can_greet = [&] { return !greeted && board.hasArrivals(op); };
  while (!begun || at < bytes || !greeted) {
    // The peers' frames come first: two that both think they are the root must notice before their
    // rings are full.
    co_await Until([&] { return can_greet() || can_give(); },
                   [&] { return greeted ? board.room().missing() : board.arrivals(op).missing(); });
    if (can_greet()) {
      board.pop();
      greeted = true;
    } else {
      const size_t length = std::min(board.payload(), bytes - at);
      board.write(board.slot(), data + at, length);
      board.publishCut(op, length, [&](int peer) {
        return route.leadsTo(peer) ? Board::Cut{0, length} : Board::headIf(!begun);
      });
      begun = true;
      at += length;
    }
  }
}

// Frame by frame from the root, or from the rank that relays it here.
Script broadcastTakenIn(Board& board, Board& returns, const Op& op, std::byte* data) {
  const Route route(board, op);
  const size_t bytes = op.signature.bytes();
  co_await board.room();
  board.publish(op, 0, 0);
  co_await board.arrivals(op);
  if (route.isRelayed()) {
    board.pop();
  }
  Board& from = route.isRelayed() ? returns : board;
  const int giver = route.isRelayed() ? route.relay() : op.signature.root;
  bool is_among_first = !route.isRelayed();
  size_t at = 0;
  do {
    const size_t length = std::min(board.payload(), bytes - at);
    co_await from.arrival(op, giver);
    const std::byte* piece = from.from(giver, length);
    if (route.isRelay()) {
      co_await returns.room();
      returns.write(returns.slot(), piece, length);
      returns.publishHere(op, length);
    }
    copyBytes(data + at, piece, length, storesFor(bytes));
    if (std::exchange(is_among_first, false)) {
      board.pop();
    } else {
      from.skip(giver, 1);
    }
    at += length;
  } while (at < bytes);
}

}  // namespace

Script broadcast(Board& board, Board& returns, const Op& op, std::byte* data) {
  return op.signature.root == board.rank() ? broadcastFromHere(board, op, data)
                                           : broadcastTakenIn(board, returns, op, data);
}

}  // namespace bluefog
