#pragma once

#include <algorithm>
#include <vector>

namespace bluefog {

// On which host each rank of a group is, as seen by one of them.
class HostMap {
 public:
  // All on one host.
  HostMap(int rank, int size);
  // `host_of` each rank: any numbers, alike where two are on one host.
  HostMap(int rank, std::vector<int> host_of);

  // The ranks of this host, with this one, and of the others; ascending.
  const std::vector<int>& here() const { return here_; }
  const std::vector<int>& elsewhere() const { return elsewhere_; }
  bool isHere(int rank) const { return std::binary_search(here_.begin(), here_.end(), rank); }
  // The ranks of each host; hosts in the order of their first ranks.
  const std::vector<std::vector<int>>& all() const { return all_; }
  // Where all hosts have as many ranks, of which this one is the k-th on its host: the k-th of
  // each. Otherwise none.
  const std::vector<int>& counterparts() const { return counterparts_; }

 private:
  std::vector<std::vector<int>> all_;
  std::vector<int> here_;
  std::vector<int> elsewhere_;
  std::vector<int> counterparts_;
};

}  // namespace bluefog
