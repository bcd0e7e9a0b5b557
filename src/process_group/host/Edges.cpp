#include "process_group/host/Edges.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <set>

namespace bluefog {
namespace {

void require(const Validate& validate, int own, const std::vector<WeightedRank>& ranks,
             const char* what) {
  std::set<int> seen;
  for (const WeightedRank& it : ranks) {
    validate.rank(it.rank, what);
    TORCH_CHECK_VALUE(it.rank != own, validate.who(), what, " rank ", it.rank,
                      " is this rank itself");
    TORCH_CHECK_VALUE(seen.insert(it.rank).second, validate.who(), what, " rank ", it.rank,
                      " is given twice");
  }
}

}  // namespace

void Edges::complete(const Validate& validate, int own) {
  require(validate, own, sources, "source");
  require(validate, own, destinations, "destination");
  partners = ranksOf(destinations);
  for (const WeightedRank& source : sources) {
    if (std::find(partners.begin(), partners.end(), source.rank) == partners.end()) {
      partners.push_back(source.rank);
    }
  }
}

}  // namespace bluefog
