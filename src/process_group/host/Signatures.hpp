#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "process_group/host/Validate.hpp"

namespace bluefog {

bool areOfOneType(const std::vector<at::Tensor>& tensors);
// Returns the signature of tensors that travel as one message.
Signature signatureOfAll(OpKind kind, const std::vector<at::Tensor>& tensors);
// Returns the signature of an average among machines that have `ranks` ranks each. The number is
// part of it, because machines of different sizes would exchange parts of different sizes.
Signature signatureAmongMachines(const at::Tensor& tensor, size_t ranks);
// Returns a signature that holds all of the shape of `like` except the number of rows, and whose
// count is that of one row.
Signature signatureOfRows(OpKind kind, const at::Tensor& like);

}  // namespace bluefog
