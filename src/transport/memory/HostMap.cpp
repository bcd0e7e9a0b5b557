#include "transport/memory/HostMap.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace bluefog {

HostMap::HostMap(int rank, int size) : HostMap(rank, std::vector<int>(static_cast<size_t>(size))) {}

HostMap::HostMap(int rank, std::vector<int> host_of) {
  std::map<int, size_t> index;
  for (size_t each = 0; each < host_of.size(); ++each) {
    const auto [found, is_new] = index.emplace(host_of[each], all_.size());
    if (is_new) {
      all_.emplace_back();
    }
    all_[found->second].push_back(static_cast<int>(each));
    const bool is_here = host_of[each] == host_of[static_cast<size_t>(rank)];
    (is_here ? here_ : elsewhere_).push_back(static_cast<int>(each));
  }
  const bool are_even = std::all_of(
      all_.begin(), all_.end(), [this](const auto& ranks) { return ranks.size() == here_.size(); });
  const auto place = std::find(here_.begin(), here_.end(), rank) - here_.begin();
  for (const auto& ranks : all_) {
    if (are_even) {
      counterparts_.push_back(ranks[static_cast<size_t>(place)]);
    }
  }
}

}  // namespace bluefog
