#pragma once

#include <ATen/core/Tensor.h>

#include <map>

#include "device/Plugin.hpp"
#include "process_group/host/Edges.hpp"

namespace bluefog {

// Computes output = (self_weight * own + sum of weight_i * received_i) / divisor on the tensors'
// device, in its current stream. Terms are added in the order of the ranks, in float32 for half
// types, and a term of weight 0 is left out. The tensors must be flat, contiguous and of one type.
// `received` has the tensor of each source by its rank. The plugin's kernel is used if it has one
// for the type.
void sumOverEdges(const Plugin& plugin, const at::Tensor& output, const Edges& edges, int rank,
                  const at::Tensor& own, const std::map<int, at::Tensor>& received);

}  // namespace bluefog
