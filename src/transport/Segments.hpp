#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "transport/Segment.hpp"

namespace bluefog {

// Where the rings between this rank and each other one lie: in the memory that the ranks of this
// host share, or, with ranks elsewhere, in memory of this rank alone that is laid out alike. A
// Bridge carries what is written there to and from their hosts.
class Segments {
 public:
  explicit Segments(Segment shared) : shared_(std::move(shared)) {}
  // `elsewhere`: ranks of other hosts.
  Segments(Segment shared, Segment own, std::vector<int> elsewhere)
      : shared_(std::move(shared)), own_(std::move(own)), elsewhere_(std::move(elsewhere)) {}

  const Segment& shared() const { return shared_; }
  const Segment& with(int peer) const { return isElsewhere(peer) ? *own_ : shared_; }
  const std::vector<int>& elsewhere() const { return elsewhere_; }
  int ranksHere() const { return shared_.size() - static_cast<int>(elsewhere_.size()); }

 private:
  bool isElsewhere(int peer) const {
    return std::find(elsewhere_.begin(), elsewhere_.end(), peer) != elsewhere_.end();
  }

  Segment shared_;
  std::optional<Segment> own_;
  std::vector<int> elsewhere_;
};

}  // namespace bluefog
