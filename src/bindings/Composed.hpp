#pragma once

#include <torch/csrc/utils/pybind.h>

#include "process_group/Frontend.hpp"

namespace bluefog {

void addComposed(pybind11::module_& module, const Frontend& frontend);

}  // namespace bluefog
