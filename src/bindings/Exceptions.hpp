#pragma once

#include <torch/csrc/utils/pybind.h>

#include <exception>

namespace bluefog {

// One Python exception per cause, all under torch.distributed.DistBackendError, with `ranks`: adds
// them to the module, and has Error raise them.
void addExceptions(pybind11::module_& module);

// An Error, as what raises the same Python exception also where torch translates instead of
// pybind11: in loss.backward(). Anything else as it is.
std::exception_ptr raisedByTorch(const std::exception_ptr& error);

}  // namespace bluefog
