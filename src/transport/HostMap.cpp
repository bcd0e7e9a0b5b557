#include "transport/HostMap.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace bluefog {

HostMap::HostMap(int rank, int size) : HostMap(rank, std::vector<int>(static_cast<size_t>(size))) {}

HostMap::HostMap(int rank, std::vector<int> host_of) {
  std::vector<std::vector<int>> hosts;
  std::map<int, size_t> index;
  for (size_t each = 0; each < host_of.size(); ++each) {
    const auto [found, is_new] = index.emplace(host_of[each], hosts.size());
    if (is_new) {
      hosts.emplace_back();
    }
    hosts[found->second].push_back(static_cast<int>(each));
    const bool is_here = host_of[each] == host_of[static_cast<size_t>(rank)];
    (is_here ? here_ : elsewhere_).push_back(static_cast<int>(each));
  }
  const bool are_even = std::all_of(hosts.begin(), hosts.end(), [this](const auto& ranks) {
    return ranks.size() == here_.size();
  });
  const auto place = std::find(here_.begin(), here_.end(), rank) - here_.begin();
  for (const auto& ranks : hosts) {
    if (are_even) {
      counterparts_.push_back(ranks[static_cast<size_t>(place)]);
    }
  }
}

}  // namespace bluefog
