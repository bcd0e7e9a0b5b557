#pragma once

#include <vector>

#include "algorithms/Algorithms.hpp"
#include "process_group/host/Validate.hpp"

namespace bluefog {

// Whom a rank averages with, and how: group ranks. A result is
// (self_weight * own + sum of weight_i * what source i sends) / divisor.
struct Edges {
  double self_weight = 1.0;
  std::vector<WeightedRank> sources;
  std::vector<WeightedRank> destinations;
  double divisor = 1.0;
  std::vector<int> partners = {};  // first those that it sends to

  // Sets `partners`; throws ValueError where they are no edges of rank `own` in that group.
  void complete(const Validate& validate, int own);
};

}  // namespace bluefog
