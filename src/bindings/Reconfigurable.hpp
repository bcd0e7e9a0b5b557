#pragma once

#include <torch/csrc/utils/pybind.h>

namespace bluefog {

// Adds Meeting and, where this torch can reconfigure groups, ProcessGroupReconfigurable.
void addReconfigurable(pybind11::module_& module);

}  // namespace bluefog
