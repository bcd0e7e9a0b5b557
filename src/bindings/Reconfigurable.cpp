#include "bindings/Reconfigurable.hpp"

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <utility>

#include "bindings/GilReleasingHolder.hpp"
#include "process_group/Meeting.hpp"
#include "process_group/ProcessGroupReconfigurable.hpp"

namespace bluefog {

namespace py = pybind11;

void addReconfigurable(py::module_& module) {
  py::class_<Meeting>(module, "Meeting")
      .def_readonly("store", &Meeting::store)
      .def_property_readonly("rank", [](const Meeting& self) { return self.epoch.rank; })
      .def_property_readonly("size", [](const Meeting& self) { return self.epoch.size(); });

#ifdef C10D_BACKEND_HAS_RECONFIGURE
  using Group = ProcessGroupReconfigurable;
  using Release = py::call_guard<py::gil_scoped_release>;
  py::class_<Group, c10d::Backend, GilReleasingHolder<Group>>(module, "ProcessGroupReconfigurable")
      .def(py::init([](c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                       c10::intrusive_ptr<Options> options, const py::function& make) {
             // The program's group may drop the function without the GIL.
             const auto kept = std::shared_ptr<py::function>(new py::function(make), [](auto* it) {
               const py::gil_scoped_acquire gil;
               delete it;
             });
             return c10::make_intrusive<Group>(
                 std::move(store), rank, size, std::move(options),
                 [kept](const Meeting& meeting, c10::intrusive_ptr<Options> own) {
                   const py::gil_scoped_acquire gil;
                   const py::object made = (*kept)(meeting, std::move(own));
                   return Group::GroupPtr(made.cast<GilReleasingHolder<ProcessGroupBluefog>>());
                 });
           }),
           py::arg("store").none(false), py::arg("rank"), py::arg("size"),
           py::arg("options").none(false), py::arg("make"))
      .def_property_readonly(
          "group",
          [](const Group& self) { return GilReleasingHolder<ProcessGroupBluefog>(self.group()); })
      .def("on_change", &Group::onChange, py::arg("changed"), Release())
      .def("_set_default_timeout", &Group::setTimeout, py::arg("timeout"), Release());
#endif
}

}  // namespace bluefog
