#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "transport/boards/Board.hpp"

namespace bluefog {

// A HostGrid arranges the ranks of a group as a grid of hosts and places. It needs hosts that have
// several ranks each, and all the same number. A rank exchanges data with the ranks of its host and
// with its counterparts, the ranks in its place on the other hosts. The first frame of each rank
// still goes to all ranks, which must see what it has called. The board must outlive the grid.
//
// Thread safety: it does not change; any thread may read it.
class HostGrid {
 public:
  // Returns whether the ranks of the board's group form a grid.
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

  // Returns the ranks on this host, with this one, in the order of their places.
  const std::vector<int>& here() const { return here_; }
  // Returns the ranks in this place, with this one, in the order of their hosts.
  const std::vector<int>& counterparts() const { return counterparts_; }
  // Returns the ranks of here() and of counterparts(), without repeating this one.
  const std::vector<int>& near() const { return near_; }
  // Returns all ranks that are not near().
  const std::vector<int>& far() const { return far_; }
  int at(size_t host, size_t place) const { return ranks_[host][place]; }
  size_t place() const { return place_; }
  size_t host() const { return host_; }
  size_t hosts() const { return counterparts_.size(); }

  // Returns what ranks on other hosts get of a frame, for Board::publishCut(). Each counterpart
  // gets what `cutFor(its host)` returns. The others get nothing, or the head of the first frame.
  template <class CutFor>
  auto forCounterparts(const CutFor& cutFor, bool is_first = false) const {
    return [this, is_first, cutFor](int peer) {
      const size_t host = indexOf(peer, counterparts_);
      return host < hosts() ? cutFor(host) : Board::headIf(is_first);
    };
  }
  // Returns, for Board::publishCut(), that ranks on other hosts get nothing of a frame, or the head
  // of the first one.
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
