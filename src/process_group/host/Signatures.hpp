#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "process_group/host/Validate.hpp"

namespace bluefog {

bool areOfOneType(const std::vector<at::Tensor>& tensors);
// Of tensors that travel as one.
Signature signatureOfAll(OpKind kind, const std::vector<at::Tensor>& tensors);
// Of an average among machines of so many ranks each: those of unlike ones would exchange unlike
// parts.
Signature signatureAmongMachines(const at::Tensor& tensor, size_t ranks);
// Of all of the shape but the number of rows.
Signature signatureOfRows(OpKind kind, const at::Tensor& like);

}  // namespace bluefog
