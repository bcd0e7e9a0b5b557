#pragma once

#include <torch/csrc/utils/pybind.h>

#include <exception>

namespace bluefog {

// Adds a Python exception for each Cause to the module, and has pybind11 raise it for an Error. All
// are subclasses of torch.distributed.DistBackendError, and have the attribute `ranks`.
void addExceptions(pybind11::module_& module);

// Returns an exception to throw in place of an Error. It raises the same Python exception, even if
// torch translates it and not pybind11, as in loss.backward(). Returns any other exception as it
// is.
std::exception_ptr raisedByTorch(const std::exception_ptr& error);

}  // namespace bluefog
