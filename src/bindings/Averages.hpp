#pragma once

#include <torch/csrc/utils/pybind.h>

namespace bluefog {

// Adds to the class of the process group what averages: neighbor_allreduce and pair_gossip. With
// the class of Edges.
void addAverages(const pybind11::handle& group, const pybind11::handle& edges);

}  // namespace bluefog
