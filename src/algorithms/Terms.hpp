#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "algorithms/Algorithms.hpp"

namespace bluefog {

// Visits the terms of a NeighborSum in the order in which rank `own` adds them. It calls
// takesOwn(weight) for the rank's own input, and takes(i, weight) for what source i has sent, whose
// sender gives it the weight sent(i). It leaves out what weighs nothing, which must not come in as
// 0 * infinity.
template <class Sent, class TakesOwn, class Takes>
void forEachTerm(const std::vector<WeightedRank>& sources, double self_weight, int own,
                 const Sent& sent, const TakesOwn& takesOwn, const Takes& takes) {
  const auto after = std::find_if(sources.begin(), sources.end(),
                                  [own](const WeightedRank& it) { return it.rank > own; });
  const auto own_place = static_cast<size_t>(after - sources.begin());
  for (size_t i = 0; i <= sources.size(); ++i) {
    if (i == own_place && self_weight != 0) {
      takesOwn(self_weight);
    }
    const double weight = i < sources.size() ? sources[i].weight * sent(i) : 0;
    if (weight != 0) {
      takes(i, weight);
    }
  }
}

}  // namespace bluefog
