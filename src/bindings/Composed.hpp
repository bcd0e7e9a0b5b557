#pragma once

#include <torch/csrc/utils/pybind.h>

#include "process_group/LanguageHooks.hpp"

namespace bluefog {

void addComposed(pybind11::module_& module, const LanguageHooks& hooks);

}  // namespace bluefog
