#pragma once

#include <algorithm>
#include <vector>

namespace bluefog {

// A HostMap says on which host each rank of a group is, from the view of one of the ranks.
// Thread safety: it never changes, and any thread may read it.
class HostMap {
 public:
  // Makes the map of a group whose ranks are all on one host.
  HostMap(int rank, int size);
  // Makes the map from one number for each rank. The numbers may be any, but must be equal exactly
  // for ranks on the same host.
  HostMap(int rank, std::vector<int> host_of);

  // here() returns the ranks on this rank's host, this rank included. elsewhere() returns all
  // others. Both are in ascending order.
  const std::vector<int>& here() const { return here_; }
  const std::vector<int>& elsewhere() const { return elsewhere_; }
  bool isHere(int rank) const { return std::binary_search(here_.begin(), here_.end(), rank); }
  // Returns the ranks of each host. The hosts are in the order of their lowest ranks.
  const std::vector<std::vector<int>>& all() const { return all_; }
  // Returns the k-th rank of each host, where this rank is the k-th one on its own host. Returns
  // nothing unless all hosts have the same number of ranks.
  const std::vector<int>& counterparts() const { return counterparts_; }

 private:
  std::vector<std::vector<int>> all_;
  std::vector<int> here_;
  std::vector<int> elsewhere_;
  std::vector<int> counterparts_;
};

}  // namespace bluefog
