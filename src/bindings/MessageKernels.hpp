#pragma once

#include <torch/csrc/utils/pybind.h>

namespace bluefog {

// Adds the class of what a device's kernels make of tensors, to be sent.
void addMessageKernels(pybind11::module_& module);

}  // namespace bluefog
