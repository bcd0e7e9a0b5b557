#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "transport/boards/Board.hpp"

namespace bluefog {

// The ranks of hosts that have several each, and all as many, as a grid: this rank exchanges data
// with those of its host and with its counterparts, the ranks in its place on the other hosts. All
// the same each rank's first frame goes to all, which must see what it called.
class HostGrid {
 public:
  static bool isOne(const Board& board) {
    return board.spansHosts() && board.hosts().here().size() > 1 &&
           !board.hosts().counterparts().empty();
  }

  explicit HostGrid(const Board& board)
      : here_(board.hosts().here()),
        counterparts_(board.hosts().counterparts()),
        ranks_(board.hosts().all()),
        place_(indexOf(board.rank(), here_)),
        host_(indexOf(board.rank(), counterparts_)),
        near_(here_) {
    for (const int rank : board.hosts().elsewhere()) {
      (indexOf(rank, counterparts_) < hosts() ? near_ : far_).push_back(rank);
    }
  }

  // In the order of the places; with this rank.
  const std::vector<int>& here() const { return here_; }
  // In the order of the hosts; with this rank.
  const std::vector<int>& counterparts() const { return counterparts_; }
  // Both.
  const std::vector<int>& near() const { return near_; }
  // All others.
  const std::vector<int>& far() const { return far_; }
  int at(size_t host, size_t place) const { return ranks_[host][place]; }
  size_t place() const { return place_; }
  size_t host() const { return host_; }
  size_t hosts() const { return counterparts_.size(); }

  // What those elsewhere get of a frame: each counterpart, what `cutFor(its host)` says, and the
  // others nothing, or of the first one its head.
  template <class CutFor>
  auto forCounterparts(const CutFor& cutFor, bool is_first = false) const {
    return [this, is_first, cutFor](int peer) {
      const size_t host = indexOf(peer, counterparts_);
      return host < hosts() ? cutFor(host) : Board::headIf(is_first);
    };
  }
  // Nothing of it for anybody elsewhere, or of the first one its head.
  auto forNobody(bool is_first) const {
    return [is_first](int) { return Board::headIf(is_first); };
  }

 private:
  static size_t indexOf(int rank, const std::vector<int>& ranks) {
    return static_cast<size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  }

  const std::vector<int>& here_;
  const std::vector<int>& counterparts_;
  const std::vector<std::vector<int>>& ranks_;
  size_t place_;
  size_t host_;
  std::vector<int> near_;
  std::vector<int> far_;
};

}  // namespace bluefog
