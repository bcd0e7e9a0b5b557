#pragma once

#include <utility>
#include <vector>

#include "algorithms/Algorithms.hpp"

namespace bluefog {

// Weights are pairs of a rank and its weight, which is the form in which Python has them.
using Weights = std::vector<std::pair<int, double>>;

inline std::vector<WeightedRank> weighted(const Weights& pairs) {
  std::vector<WeightedRank> ranks;
  ranks.reserve(pairs.size());
  for (const auto& [rank, weight] : pairs) {
    ranks.push_back({rank, weight});
  }
  return ranks;
}

inline Weights paired(const std::vector<WeightedRank>& ranks) {
  Weights pairs;
  for (const WeightedRank& it : ranks) {
    pairs.emplace_back(it.rank, it.weight);
  }
  return pairs;
}

}  // namespace bluefog
