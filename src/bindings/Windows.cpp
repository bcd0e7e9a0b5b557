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

// In a table of integers: of a tensor that nobody reads where it lies.
constexpr int64_t kNoPlace = -1;
using Places = std::vector<std::pair<uint64_t, int64_t>>;

// Of edges, while a with statement runs.
class Exclusion {
 public:
  Exclusion(WindowBluefog& window, std::vector<WindowBluefog::Edge> edges)
      : window_(window), edges_(std::move(edges)) {}

  void enter() { window_.take(edges_); }
  void exit(const py::args& /*error*/) { window_.letGo(edges_); }

 private:
  WindowBluefog& window_;
  const std::vector<WindowBluefog::Edge> edges_;
};

std::vector<WindowPlace> placesOf(const Places& given) {
  std::vector<WindowPlace> places;
  for (const auto& [room, tensor] : given) {
    places.push_back({room, tensor == kNoPlace ? std::nullopt : std::optional<uint64_t>(tensor)});
  }
  return places;
}

}  // namespace

void addWindows(py::module_& module) {
  using Release = py::call_guard<py::gil_scoped_release>;
  using State = WindowBluefog::State;
  using Sent = WindowBluefog::Sent;

  py::class_<State>(module, "SlotState")
      .def_readonly("version", &State::version)
      .def_readonly("changes", &State::changes)
      .def_readonly("age", &State::age)
      .def_readonly("p", &State::p)
      .def_readonly("has_ended", &State::has_ended);

  py::class_<Sent>(module, "SentTo")
      .def_readonly("puts", &Sent::puts)
      .def_readonly("bytes", &Sent::bytes)
      .def_readonly("dropped", &Sent::dropped);

  py::class_<WindowWork, std::shared_ptr<WindowWork>>(module, "WindowWork")
      .def("is_completed", &WindowWork::isCompleted)
      .def("wait", &WindowWork::wait, Release());

  py::class_<WindowBluefog>(module, "WindowBluefog")
      .def(py::init([](ProcessGroupBluefog& group, const std::string& name,
                       const at::Tensor& tensor, bool is_fresh, bool drops) {
             const py::gil_scoped_release release;  // it copies the tensor
             return std::make_unique<WindowBluefog>(group.windowMeans(), name, tensor, is_fresh,
                                                    drops);
           }),
           py::arg("group"), py::arg("name"), py::arg("tensor"), py::arg("is_fresh"),
           py::arg("drops"))
      .def_property_readonly("place",
                             [](const WindowBluefog& self) {
                               const WindowPlace place = self.place();
                               return std::pair(
                                   place.room,
                                   place.tensor ? static_cast<int64_t>(*place.tensor) : kNoPlace);
                             })
      .def_property_readonly("tensor", &WindowBluefog::tensor)
      .def_property_readonly("p", &WindowBluefog::p)
      .def(
          "open",
          [](WindowBluefog& self, uint64_t number, const Places& places, bool zero_init,
             const std::vector<int>& sources) {
            self.open(number, placesOf(places), zero_init, sources);
          },
          py::arg("number"), py::arg("places"), py::arg("zero_init"), py::arg("sources"), Release())
      .def(
          "put",
          [](WindowBluefog& self, const at::Tensor& tensor, const Weights& destinations,
             bool accumulate, bool require_mutex, bool with_p, bool async_op) {
            const Reach::Into into = accumulate ? Reach::Into::kAdd : Reach::Into::kReplace;
            return self.put(tensor, weighted(destinations),
                            {into, require_mutex, with_p, async_op});
          },
          py::arg("tensor"), py::arg("destinations"), py::arg("accumulate"),
          py::arg("require_mutex"), py::arg("with_p"), py::arg("async_op"), Release())
      .def(
          "get",
          [](WindowBluefog& self, const Weights& sources, bool require_mutex, bool with_p,
             bool async_op) {
            return self.get(weighted(sources), require_mutex, with_p, async_op);
          },
          py::arg("sources"), py::arg("require_mutex"), py::arg("with_p"), py::arg("async_op"),
          Release())
      .def(
          "flush", [](WindowBluefog& self, const std::string& op) { self.flush(op.c_str()); },
          py::arg("op"), Release())
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
      .def("sent", &WindowBluefog::sent)
      .def("states", &WindowBluefog::states, py::arg("writers"))
      .def(
          "close", [](WindowBluefog& self, const std::string& op) { self.close(op.c_str()); },
          py::arg("op"), Release())
      .def("reopen", &WindowBluefog::reopen);

  // In C++, since Ctrl-C may come between any two lines of Python.
  py::class_<Exclusion>(module, "Exclusion")
      .def(py::init<WindowBluefog&, std::vector<WindowBluefog::Edge>>(), py::arg("window"),
           py::arg("edges"), py::keep_alive<1, 2>())
      .def("__enter__", &Exclusion::enter, Release())
      .def("__exit__", &Exclusion::exit, Release());
}

}  // namespace bluefog
