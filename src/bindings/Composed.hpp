#pragma once

#include <torch/csrc/utils/pybind.h>

#include "process_group/LanguageHooks.hpp"

namespace bluefog {

// Adds ProcessGroupComposed, and the Works that a group with an accelerator returns.
void addComposed(pybind11::module_& module, const LanguageHooks& hooks);

}  // namespace bluefog
