#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "transport/memory/HostMap.hpp"
#include "transport/memory/Segment.hpp"

namespace bluefog {

// Segments says in which Segment the rings between this rank and each other rank lie, and owns
// them. Rings to ranks of this host lie in the memory that these ranks share. Rings to ranks on
// other hosts lie in memory of this rank alone, which has the same layout: a Bridge carries what is
// written there to the other hosts and back.
// Thread safety: it never changes, and any thread may read it.
class Segments {
 public:
  // Makes it for a group whose ranks are all on this host.
  Segments(Segment shared, int rank) : shared_(std::move(shared)), hosts_(rank, shared_.size()) {}
  // Makes it for a group with ranks on other hosts, for which `own` is.
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
