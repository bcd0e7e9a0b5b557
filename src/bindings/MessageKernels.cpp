#include "process_group/device/MessageKernels.hpp"

#include <torch/csrc/utils/pybind.h>

#include "bindings/MessageKernels.hpp"

namespace bluefog {

namespace py = pybind11;

void addMessageKernels(py::module_& module) {
  using Release = py::call_guard<py::gil_scoped_release>;
  py::class_<MessageKernels>(module, "MessageKernels")
      .def(py::init<const std::string&>(), py::arg("plugin"), Release())
      .def_property_readonly("reason", &MessageKernels::reason)
      .def("narrow", &MessageKernels::narrow, py::arg("tensor"), py::arg("dtype"), Release())
      .def("widen", &MessageKernels::widen, py::arg("message"), py::arg("dtype"), py::arg("like"),
           Release())
      .def("quantize", &MessageKernels::quantize, py::arg("tensor"), py::arg("block"), Release())
      .def("dequantize", &MessageKernels::dequantize, py::arg("message"), py::arg("like"),
           py::arg("block"), Release())
      .def("pick_largest", &MessageKernels::pickLargest, py::arg("tensor"), py::arg("count"),
           Release())
      .def("scatter", &MessageKernels::scatter, py::arg("message"), py::arg("like"), Release());
}

}  // namespace bluefog
