#include "bindings/Windows.hpp"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/Weights.hpp"
#include "process_group/ProcessGroupBluefog.hpp"
#include "process_group/window/TensorWindow.hpp"

namespace bluefog {
namespace {

namespace py = pybind11;

// Stands in a table of integers for the place of a tensor that nobody reads where it lies.
constexpr int64_t kNoPlace = -1;
using Places = std::vector<std::pair<uint64_t, int64_t>>;

// EndWithoutGil destroys a window without the GIL, because a window's end waits for its own thread
// and for its device.
struct EndWithoutGil {
  void operator()(TensorWindow* window) const {
    const py::gil_scoped_release release;
    std::default_delete<TensorWindow>()(window);
  }
};
using HeldWindow = std::unique_ptr<TensorWindow, EndWithoutGil>;

// An Exclusion holds the mutexes of edges of a window while a `with` statement runs. The window
// must outlive it.
class Exclusion {
 public:
  Exclusion(TensorWindow& window, std::vector<TensorWindow::Edge> edges)
      : window_(window), edges_(std::move(edges)) {}

  void enter() { window_.take(edges_); }
  void exit(const py::args& /*error*/) { window_.letGo(edges_); }

 private:
  TensorWindow& window_;
  const std::vector<TensorWindow::Edge> edges_;
};

std::vector<WindowPlace> placesOf(const Places& given) {
  std::vector<WindowPlace> places;
  for (const auto& [room, tensor] : given) {
    places.push_back({room, tensor == kNoPlace ? std::nullopt : std::optional<uint64_t>(tensor)});
  }
  return places;
}

using Ticket = DeviceWindowMemory::Ticket;

// Returns the ticket as bytes. If there is none, these are the bytes of a ticket for memory that is
// not shared.
std::string bytesOf(const std::optional<Ticket>& ticket) {
  const Ticket given = ticket.value_or(Ticket{});
  return {reinterpret_cast<const char*>(&given), sizeof given};
}

std::vector<Ticket> ticketsOf(const std::vector<std::string>& given) {
  std::vector<Ticket> tickets(given.size());
  for (size_t rank = 0; rank < given.size(); ++rank) {
    TORCH_CHECK_VALUE(given[rank].size() == sizeof(Ticket), "a ticket of another size");
    std::memcpy(&tickets[rank], given[rank].data(), sizeof(Ticket));
  }
  return tickets;
}

}  // namespace

void addWindows(py::module_& module) {
  using Release = py::call_guard<py::gil_scoped_release>;
  using SlotReport = TensorWindow::SlotReport;
  using Sent = TensorWindow::Sent;

  py::class_<SlotReport>(module, "SlotState")
      .def_readonly("version", &SlotReport::version)
      .def_readonly("changes", &SlotReport::changes)
      .def_readonly("age", &SlotReport::age)
      .def_readonly("p", &SlotReport::p)
      .def_readonly("has_ended", &SlotReport::has_ended);

  py::class_<Sent>(module, "SentTo")
      .def_readonly("puts", &Sent::puts)
      .def_readonly("bytes", &Sent::bytes)
      .def_readonly("dropped", &Sent::dropped);

  py::class_<WindowWork, std::shared_ptr<WindowWork>>(module, "WindowWork")
      .def("is_completed", &WindowWork::isCompleted)
      .def("wait", &WindowWork::wait, Release());

  py::class_<TensorWindow, HeldWindow>(module, "TensorWindow")
      .def(
          py::init([](ProcessGroupBluefog& group, const std::string& name, const at::Tensor& tensor,
                      bool is_fresh, bool drops, const std::vector<int>& sources) {
            const py::gil_scoped_release release;  // it copies the tensor
            auto made = std::make_unique<TensorWindow>(
                group.windowResources(tensor), name,
                TensorWindow::Plan{tensor, is_fresh, drops, sources});
            return made.release();  // Python holds it
          }),
          py::arg("group"), py::arg("name"), py::arg("tensor"), py::arg("is_fresh"),
          py::arg("drops"), py::arg("sources"))
      .def_property_readonly("place",
                             [](const TensorWindow& self) {
                               const WindowPlace place = self.place();
                               return std::pair(
                                   place.room,
                                   place.tensor ? static_cast<int64_t>(*place.tensor) : kNoPlace);
                             })
      .def_property_readonly("tensor", &TensorWindow::tensor)
      .def_property_readonly("p", &TensorWindow::p)
      .def("ticket", [](TensorWindow& self) { return py::bytes(bytesOf(self.ticket())); })
      .def(
          "reach_out",
          [](TensorWindow& self, const std::vector<std::string>& tickets,
             const std::vector<std::vector<int>>& sources) {
            TensorWindow::OpenedPeers opened = self.openPeers(ticketsOf(tickets), sources);
            return std::tuple(opened.slots, opened.tensors, opened.reason);
          },
          py::arg("tickets"), py::arg("sources"), Release())
      .def(
          "open",
          [](TensorWindow& self, uint64_t number, const Places& places, bool zero_init,
             const std::vector<int>& writers, const std::vector<int>& owners) {
            self.open(number, placesOf(places), zero_init, {writers, owners});
          },
          py::arg("number"), py::arg("places"), py::arg("zero_init"), py::arg("writers"),
          py::arg("owners"), Release())
      .def(
          "put",
          [](TensorWindow& self, const at::Tensor& tensor, const Weights& destinations,
             bool accumulate, bool require_mutex, bool with_p, bool async_op) {
            const PeerWindow::Into into =
                accumulate ? PeerWindow::Into::kAdd : PeerWindow::Into::kReplace;
            return self.put(tensor, weighted(destinations),
                            {into, require_mutex, with_p, async_op});
          },
          py::arg("tensor"), py::arg("destinations"), py::arg("accumulate"),
          py::arg("require_mutex"), py::arg("with_p"), py::arg("async_op"), Release())
      .def(
          "get",
          [](TensorWindow& self, const Weights& sources, bool require_mutex, bool with_p,
             bool async_op) {
            return self.get(weighted(sources), require_mutex, with_p, async_op);
          },
          py::arg("sources"), py::arg("require_mutex"), py::arg("with_p"), py::arg("async_op"),
          Release())
      .def(
          "flush", [](TensorWindow& self, const std::string& op) { self.flush(op.c_str()); },
          py::arg("op"), Release())
      .def(
          "update",
          [](TensorWindow& self, double self_weight, const Weights& sources, bool reset, bool clone,
             bool require_mutex, bool with_p) {
            return self.update(self_weight, weighted(sources), reset, clone, require_mutex, with_p);
          },
          py::arg("self_weight"), py::arg("sources"), py::arg("reset"), py::arg("clone"),
          py::arg("require_mutex"), py::arg("with_p"), Release())
      .def("await_news", &TensorWindow::awaitNews, py::arg("sources"), Release())
      .def("read", &TensorWindow::read, py::arg("writer"), py::arg("require_mutex"), Release())
      .def("multiply_p", &TensorWindow::multiplyP, py::arg("factor"))
      .def("sent", &TensorWindow::sent)
      .def("states", &TensorWindow::states, py::arg("writers"))
      .def(
          "close", [](TensorWindow& self, const std::string& op) { self.close(op.c_str()); },
          py::arg("op"), Release())
      .def("reopen", &TensorWindow::reopen, Release())
      .def("note_opened", &TensorWindow::noteOpened, Release())
      .def("note_freed", &TensorWindow::noteFreed)
      .def("abandon", &TensorWindow::abandon, Release());

  // This class is in C++, because Ctrl-C may come between any two lines of Python.
  py::class_<Exclusion>(module, "Exclusion")
      .def(py::init<TensorWindow&, std::vector<TensorWindow::Edge>>(), py::arg("window"),
           py::arg("edges"), py::keep_alive<1, 2>())
      .def("__enter__", &Exclusion::enter, Release())
      .def("__exit__", &Exclusion::exit, Release());
}

}  // namespace bluefog
