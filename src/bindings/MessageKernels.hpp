#pragma once

#include <torch/csrc/utils/pybind.h>

namespace bluefog {

// Adds the class MessageKernels, which makes messages of tensors by a device's kernels.
void addMessageKernels(pybind11::module_& module);

}  // namespace bluefog
