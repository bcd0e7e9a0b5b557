#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "transport/memory/HostMap.hpp"
#include "transport/memory/Segment.hpp"

namespace bluefog {

// Where the rings between this rank and each other one lie: in the memory that the ranks of this
// host share, or, with ranks elsewhere, in memory of this rank alone that is laid out alike. A
// Bridge carries what is written there to and from their hosts.
class Segments {
 public:
  Segments(Segment shared, int rank) : shared_(std::move(shared)), hosts_(rank, shared_.size()) {}
  // Where some ranks are elsewhere.
  Segments(Segment shared, Segment own, HostMap hosts)
      : shared_(std::move(shared)), own_(std::move(own)), hosts_(std::move(hosts)) {}

  const Segment& shared() const { return shared_; }
  const Segment& with(int peer) const { return hosts_.isHere(peer) ? shared_ : *own_; }
  const HostMap& hosts() const { return hosts_; }

 private:
  Segment shared_;
  std::optional<Segment> own_;
  HostMap hosts_;
};

}  // namespace bluefog
