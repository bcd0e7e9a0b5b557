#pragma once

#include <torch/csrc/utils/pybind.h>

#include "process_group/Language.hpp"

namespace bluefog {

// Adds ProcessGroupComposed, and the Works that a group with an accelerator returns.
void addComposed(pybind11::module_& module, const Language& language);

}  // namespace bluefog
