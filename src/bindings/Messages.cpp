#include "process_group/accelerator/Messages.hpp"

#include <torch/csrc/utils/pybind.h>

#include "bindings/Messages.hpp"

namespace bluefog {

namespace py = pybind11;

void addMessages(py::module_& module) {
  using Release = py::call_guard<py::gil_scoped_release>;
  py::class_<Messages>(module, "Messages")
      .def(py::init<const std::string&>(), py::arg("plugin"), Release())
      .def_property_readonly("reason", &Messages::reason)
      .def("narrow", &Messages::narrow, py::arg("tensor"), py::arg("dtype"), Release())
      .def("widen", &Messages::widen, py::arg("message"), py::arg("dtype"), py::arg("like"),
           Release())
      .def("quantize", &Messages::quantize, py::arg("tensor"), py::arg("block"), Release())
      .def("dequantize", &Messages::dequantize, py::arg("message"), py::arg("like"),
           py::arg("block"), Release())
      .def("pick_largest", &Messages::pickLargest, py::arg("tensor"), py::arg("count"), Release())
      .def("scatter", &Messages::scatter, py::arg("message"), py::arg("like"), Release());
}

}  // namespace bluefog
