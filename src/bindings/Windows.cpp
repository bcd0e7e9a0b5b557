#include "bindings/Windows.hpp"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <string>
#include <vector>

#include "bindings/Weights.hpp"
#include "process_group/ProcessGroupBluefog.hpp"
#include "process_group/WindowBluefog.hpp"

namespace bluefog {
namespace {

namespace py = pybind11;

}  // namespace

void addWindows(py::module_& module) {
  using Release = py::call_guard<py::gil_scoped_release>;
  using State = WindowBluefog::State;

  py::class_<State>(module, "SlotState")
      .def_readonly("version", &State::version)
      .def_readonly("changes", &State::changes)
      .def_readonly("age", &State::age)
      .def_readonly("p", &State::p);

  py::class_<WindowBluefog>(module, "WindowBluefog")
      .def(py::init(
               [](ProcessGroupBluefog& group, const std::string& name, const at::Tensor& tensor) {
                 return std::make_unique<WindowBluefog>(group.windowGround(), name, tensor);
               }),
           py::arg("group"), py::arg("name"), py::arg("tensor"))
      .def_property_readonly("place", &WindowBluefog::place)
      .def_property_readonly("tensor", &WindowBluefog::tensor)
      .def_property_readonly("p", &WindowBluefog::p)
      .def("open", &WindowBluefog::open, py::arg("places"), py::arg("zero_init"),
           py::arg("sources"), Release())
      .def(
          "put",
          [](WindowBluefog& self, const at::Tensor& tensor, const Weights& destinations,
             bool accumulate, bool require_mutex, bool with_p) {
            self.put(tensor, weighted(destinations), accumulate, require_mutex, with_p);
          },
          py::arg("tensor"), py::arg("destinations"), py::arg("accumulate"),
          py::arg("require_mutex"), py::arg("with_p"), Release())
      .def(
          "get",
          [](WindowBluefog& self, const Weights& sources, bool require_mutex) {
            self.get(weighted(sources), require_mutex);
          },
          py::arg("sources"), py::arg("require_mutex"), Release())
      .def(
          "update",
          [](WindowBluefog& self, double self_weight, const Weights& sources, bool reset,
             bool clone, bool require_mutex, bool with_p) {
            return self.update(self_weight, weighted(sources), reset, clone, require_mutex, with_p);
          },
          py::arg("self_weight"), py::arg("sources"), py::arg("reset"), py::arg("clone"),
          py::arg("require_mutex"), py::arg("with_p"), Release())
      .def("read", &WindowBluefog::read, py::arg("writer"), py::arg("require_mutex"), Release())
      .def("multiply_p", &WindowBluefog::multiplyP, py::arg("factor"))
      .def("states", &WindowBluefog::states, py::arg("writers"))
      .def("take", py::overload_cast<const std::vector<WindowBluefog::Edge>&>(&WindowBluefog::take),
           py::arg("edges"), Release())
      .def("let_go",
           py::overload_cast<const std::vector<WindowBluefog::Edge>&>(&WindowBluefog::letGo),
           py::arg("edges"), Release());
}

}  // namespace bluefog
