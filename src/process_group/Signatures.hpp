#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "process_group/Validate.hpp"

namespace bluefog {

bool areOfOneType(const std::vector<at::Tensor>& tensors);
// Of tensors that travel as one.
Signature signatureOfAll(OpKind kind, const std::vector<at::Tensor>& tensors);
// Of all of the shape but the number of rows.
Signature signatureOfRows(OpKind kind, const at::Tensor& like);

}  // namespace bluefog
