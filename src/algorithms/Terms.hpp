#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "algorithms/Algorithms.hpp"

namespace bluefog {

// The terms of a NeighborSum in the order in which rank `own` adds them: takesOwn(weight), and
// takes(i, weight) of what source i has sent, whose sender multiplies it by sent(i). What weighs
// nothing is left out: it must not come in as 0 * infinity either.
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
