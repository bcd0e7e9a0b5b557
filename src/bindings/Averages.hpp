#pragma once

#include <torch/csrc/utils/pybind.h>

namespace bluefog {

// Adds the methods that average, neighbor_allreduce and pair_gossip, to the class of the process
// group. `edges` is the class of Edges, of which they take an object.
void addAverages(const pybind11::handle& group, const pybind11::handle& edges);

}  // namespace bluefog
