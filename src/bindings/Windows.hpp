#pragma once

#include <pybind11/pybind11.h>

namespace bluefog {

// What `bluefog_pg.Window` is made of.
void addWindows(pybind11::module_& module);

}  // namespace bluefog
