#pragma once

#include <ATen/core/Tensor.h>

#include <map>

#include "device/Plugin.hpp"
#include "process_group/host/Edges.hpp"

namespace bluefog {

// On the tensors' device, in its current stream; flat contiguous tensors of one type.

// output = (self_weight * own + sum of weight_i * received_i) / divisor, term after term in the
// order of the ranks, in float32 for half types. What weighs nothing is left out.
// By the plugin's kernel where that has one for them. `received`: by rank.
void sumOverEdges(const Plugin& plugin, const at::Tensor& output, const Edges& edges, int rank,
                  const at::Tensor& own, const std::map<int, at::Tensor>& received);

}  // namespace bluefog
