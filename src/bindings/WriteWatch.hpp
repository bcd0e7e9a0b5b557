#pragma once

#include <torch/csrc/utils/pybind.h>

namespace bluefog {

// Adds the class WriteWatch, which sees whether a program has written to tensors.
void addWriteWatch(pybind11::module_& module);

}  // namespace bluefog
