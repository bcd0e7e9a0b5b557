#include "bindings/Composed.hpp"

#include <pybind11/stl.h>

#include <utility>

#include "bindings/GilReleasingHolder.hpp"
#include "process_group/device/AcceleratorWork.hpp"
#include "process_group/device/ProcessGroupComposed.hpp"
#include "process_group/work/BatchWork.hpp"

namespace bluefog {

namespace py = pybind11;

void addComposed(py::module_& module, const Language& language) {
  // The Works get result() here, because c10d deprecates its own. An operation that makes new
  // tensors has them there.
  py::class_<AcceleratorWork, c10d::Work, c10::intrusive_ptr<AcceleratorWork>>(module,
                                                                               "AcceleratorWork")
      .def("result", &AcceleratorWork::result);

  py::class_<BatchWork, c10d::Work, c10::intrusive_ptr<BatchWork>>(module, "BatchWork")
      .def(py::init([](BatchWork::Works works) {
             return c10::make_intrusive<BatchWork>(-1, std::move(works));
           }),
           py::arg("works"))
      .def("result", &BatchWork::result);

  py::class_<ProcessGroupComposed, ProcessGroupBluefog, GilReleasingHolder<ProcessGroupComposed>>(
      module, "ProcessGroupComposed")
      .def(py::init([language](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                               c10::intrusive_ptr<Options> options) {
             const py::gil_scoped_release release;
             return c10::make_intrusive<ProcessGroupComposed>(store, rank, size, std::move(options),
                                                              language);
           }),
           py::arg("store").none(false), py::arg("rank"), py::arg("size"),
           py::arg("options").none(false))
      .def(py::init([language](const Meeting& meeting, c10::intrusive_ptr<Options> options) {
             const py::gil_scoped_release release;
             return c10::make_intrusive<ProcessGroupComposed>(meeting, std::move(options),
                                                              language);
           }),
           py::arg("meeting"), py::arg("options").none(false))
      .def(
          "set_accelerator",
          [](ProcessGroupComposed& self, const std::string& device,
             c10::intrusive_ptr<c10d::Backend> backend, const std::string& plugin) {
            self.setAccelerator(
                std::make_shared<Accelerator>(c10::Device(device).type(), std::move(backend),
                                              std::make_shared<const Plugin>(plugin)));
          },
          py::arg("device"), py::arg("backend").none(false), py::arg("plugin"))
      // The text says why there are no kernels for the device. It is empty if there are.
      .def_property_readonly("plugin_reason",
                             [](const ProcessGroupComposed& self) {
                               (void)self.backend();  // throws if there is no accelerator yet
                               return self.accelerator()->plugin().reason();
                             })
      .def_property_readonly("accelerator_backend",
                             [](const ProcessGroupComposed& self) { return self.backend(); })
      // Torch calls this on a rank that is no member of a new group, which it makes by split().
      .def(
          "perform_nocolor_split",
          [](const ProcessGroupComposed& self, const py::object& device) {
            const auto& backend = self.backend();
            if (py::cast<c10::Device>(device).type() == self.accelerator()->type()) {
              py::cast(backend).attr("perform_nocolor_split")(device);
            }
          },
          py::arg("device"))
      // Python asks here for attributes that this class lacks and the accelerator's backend may
      // have.
      .def("__getattr__", [](const ProcessGroupComposed& self, const std::string& name) {
        if (self.accelerator() == nullptr) {
          throw py::attribute_error(name + ": the group has no accelerator yet");
        }
        return py::object(py::cast(self.backend()).attr(name.c_str()));
      });
}

}  // namespace bluefog
