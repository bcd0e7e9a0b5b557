#pragma once

#include <vector>

#include "algorithms/Algorithms.hpp"
#include "process_group/host/Validate.hpp"

namespace bluefog {

// Edges say which ranks of the group a rank averages with, and by which weights. A result is
// (self_weight * own + sum of weight_i * what source i sends) / divisor.
// Thread safety: one thread at a time until complete() has returned; then any thread may read it.
struct Edges {
  double self_weight = 1.0;
  std::vector<WeightedRank> sources;
  std::vector<WeightedRank> destinations;
  double divisor = 1.0;
  std::vector<int> partners = {};  // destinations, then sources that are no destinations

  // Sets `partners`. Throws ValueError if rank `own` cannot have these edges in its group.
  void complete(const Validate& validate, int own);
};

}  // namespace bluefog
