#pragma once

#include <pybind11/pybind11.h>

namespace bluefog {

// Adds the classes of which `bluefog_pg.Window` is made.
void addWindows(pybind11::module_& module);

}  // namespace bluefog
