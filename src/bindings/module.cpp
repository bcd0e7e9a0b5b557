// This file describes the module to Python. It holds conversions, and no other logic.
#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "bindings/Averages.hpp"
#include "bindings/Composed.hpp"
#include "bindings/Exceptions.hpp"
#include "bindings/GilReleasingHolder.hpp"
#include "bindings/MessageKernels.hpp"
#include "bindings/Reconfigurable.hpp"
#include "bindings/Weights.hpp"
#include "bindings/Windows.hpp"
#include "bindings/WriteWatch.hpp"
#include "bootstrap/mpi/World.hpp"
#include "bootstrap/pmix/Client.hpp"
#include "core/Deadline.hpp"
#include "core/Interruption.hpp"
#include "process_group/ProcessGroupBluefog.hpp"
#include "process_group/Registry.hpp"
#include "process_group/work/WorkBluefog.hpp"

namespace py = pybind11;
using bluefog::Edges;
using bluefog::FlightLog;
using bluefog::Match;
using bluefog::Op;
using bluefog::OpKind;
using bluefog::Options;
using bluefog::ProcessGroupBluefog;
using bluefog::WorkBluefog;

namespace {

// An Interrupted carries what a signal handler of Python has raised, such as KeyboardInterrupt, in
// a form that the core recognizes.
class Interrupted : public py::error_already_set, public bluefog::Interruption {};

// Throws if Ctrl-C was pressed, which ends a wait. Returns whether something else in this process
// may bring the wait to its end. That is another Python thread, or an operation of another group,
// which may have a callback.
bool checkSignals() {
  if (Py_IsInitialized() == 0) {
    return true;
  }
  const bool others = bluefog::registry::busy() > 1;
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) {
    throw Interrupted();
  }
  return others ||
         PyThreadState_Next(PyInterpreterState_ThreadHead(PyInterpreterState_Get())) != nullptr;
}

bluefog::mpi::Home findMpi() {
  const py::gil_scoped_acquire gil;
  try {
    const py::object home = py::module_::import("bluefog_pg.launch.mpi").attr("find")();
    const auto field = [&home](const char* name) { return home.attr(name).cast<std::string>(); };
    return {field("library"), field("pmix_library"), field("prefix"), field("server_program")};
  } catch (const py::error_already_set& error) {
    throw std::runtime_error(py::str(error.value()));  // the group adds its rank and its name
  }
}

const bluefog::Language kPython{checkSignals, bluefog::raisedByTorch, findMpi};

py::list described(const FlightLog::TensorShapes& shapes, bool as_types) {
  py::list list;
  for (const FlightLog::TensorShape& shape : shapes) {
    if (as_types) {
      list.append(c10::toString(shape.dtype));
    } else {
      list.append(std::vector<int64_t>(shape.sizes.begin(), shape.sizes.end()));
    }
  }
  return list;
}

// Converts a time to that of the system's clock. The distance of the two clocks is read once in a
// process, so that what came later has a later time.
std::chrono::nanoseconds sinceEpoch(Op::Time time) {
  static const auto apart = std::chrono::system_clock::now().time_since_epoch() -
                            Op::Time::clock::now().time_since_epoch();
  return time.time_since_epoch() + apart;
}

// Returns an entry as a dict, with the names of torch's flight recorder.
py::dict described(const FlightLog::Entry& entry) {
  using State = FlightLog::Entry::State;
  const bool done = entry.state != State::kScheduled;
  py::dict dict;
  dict["record_id"] = entry.number;
  dict["profiling_name"] = entry.title;
  dict["collective_seq_id"] = entry.is_message ? 0 : entry.sequence;
  dict["p2p_seq_id"] = entry.is_message ? entry.sequence : 0;
  dict["is_p2p"] = entry.is_message;
  dict["partners"] = std::vector<int>(entry.partners.begin(), entry.partners.end());
  dict["time_created_ns"] = sinceEpoch(entry.created).count();
  dict["timeout_ms"] = entry.timeout.count();
  dict["input_sizes"] = described(entry.inputs, false);
  dict["input_dtypes"] = described(entry.inputs, true);
  dict["output_sizes"] = described(entry.outputs, false);
  dict["output_dtypes"] = described(entry.outputs, true);
  dict["state"] = !done ? "scheduled" : entry.state == State::kFailed ? "failed" : "completed";
  if (done) {
    dict["duration_ms"] = std::chrono::duration<double, std::milli>(entry.duration).count();
  }
  return dict;
}

py::list flightLog(ProcessGroupBluefog& group) {
  std::vector<FlightLog::Entry> entries;
  {
    const py::gil_scoped_release release;
    entries = group.flightLog().entries();
  }
  py::list list;
  for (const FlightLog::Entry& entry : entries) {
    list.append(described(entry));
  }
  return list;
}

using Tensors = std::vector<at::Tensor>;
using bluefog::paired;
using bluefog::weighted;
using bluefog::Weights;

// A Result is the Work of an asynchronous operation, or the tensors that another one has made.
using Result = std::variant<bluefog::WorkPtr, Tensors>;

template <class Start>
Result ended(bool async_op, const Start& start) {
  const py::gil_scoped_release release;
  bluefog::WorkPtr work = start();
  if (async_op) {
    return work;
  }
  work->wait();  // a call does not wait by itself while the thread has a batch
  return work->result();
}

std::variant<bluefog::WorkPtr, at::Tensor> first(Result&& result) {
  if (auto* tensors = std::get_if<Tensors>(&result)) {
    return std::move(tensors->front());
  }
  return std::get<bluefog::WorkPtr>(std::move(result));
}

template <OpKind kind, bool is_of_all = false>
auto partsOf(ProcessGroupBluefog& self, const at::Tensor& like, const Tensors& parts,
             const Edges& edges, Match& match, bool async_op) {
  return ended(async_op, [&] {
    return self.neighborGather(kind, like, parts, edges, {{match, async_op}, false, is_of_all});
  });
}

// tests/tools/test_examples.py runs the example.
const char* const kProcessGroupBluefog = R"doc(The backend of a process group.

torch.distributed makes one for each group with backend "bluefog", and the functions of this package
call it. A program needs it only for what c10d gives each backend, such as `abort()`.

Thread safety: any thread may call it, and ranks match calls by their order. It owns the group's
shared memory, its connections, and a thread for asynchronous operations.

Example:
    >>> group = torch.distributed.group.WORLD
    >>> backend = group._get_backend(torch.device("cpu"))
    >>> isinstance(backend, bf.ProcessGroupBluefog), backend.size()
    (True, 4)
)doc";

}  // namespace

PYBIND11_MODULE(_C, module) {
  module.doc() = "The compiled part of bluefog_pg.";

  bluefog::addExceptions(module);

  using Release = py::call_guard<py::gil_scoped_release>;

  // The Work gets result() here, because c10d deprecates its own. An operation that makes new
  // tensors has them there.
  py::class_<WorkBluefog, c10d::Work, c10::intrusive_ptr<WorkBluefog>>(module, "WorkBluefog")
      .def("result", &WorkBluefog::result);

  py::class_<ProcessGroupBluefog, c10d::Backend, bluefog::GilReleasingHolder<ProcessGroupBluefog>>
      group(module, "ProcessGroupBluefog", kProcessGroupBluefog);

  py::class_<Match>(module, "Match")
      .def(py::init([](int64_t tag, uint64_t number) { return Match{tag, number}; }),
           py::arg("tag"), py::arg("number") = 0)
      .def_property_readonly("number", &Match::numberOfCall);
  py::implicitly_convertible<py::int_, Match>();

  py::class_<Edges, std::shared_ptr<Edges>> edges(module, "Edges");
  edges.def_readonly("self_weight", &Edges::self_weight)
      .def_readonly("divisor", &Edges::divisor)
      .def_property_readonly("sources", [](const Edges& self) { return paired(self.sources); })
      .def_property_readonly("destinations",
                             [](const Edges& self) { return paired(self.destinations); });

  py::class_<Options, c10d::Backend::Options, c10::intrusive_ptr<Options>>(group, "Options")
      .def(py::init<>())
      .def_readwrite("accelerator", &Options::accelerator)
      .def("__deepcopy__",
           [](const Options& self, const py::dict&) { return c10::make_intrusive<Options>(self); });

  group
      .def(py::init([](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                       c10::intrusive_ptr<Options> options) {
             const py::gil_scoped_release release;
             return c10::make_intrusive<ProcessGroupBluefog>(store, rank, size, std::move(options),
                                                             kPython);
           }),
           py::arg("store").none(false), py::arg("rank"), py::arg("size"),
           py::arg("options").none(false))
      .def(py::init([](const bluefog::Meeting& meeting, c10::intrusive_ptr<Options> options) {
             const py::gil_scoped_release release;
             return c10::make_intrusive<ProcessGroupBluefog>(meeting, std::move(options), kPython);
           }),
           py::arg("meeting"), py::arg("options").none(false))
      .def_property_readonly(
          "options",
          [](ProcessGroupBluefog& self) {
            return c10::static_intrusive_pointer_cast<Options>(self.getBackendOptions());
          })
      .def("_set_default_timeout", &ProcessGroupBluefog::setTimeout, py::arg("timeout"), Release())
      // Torch calls this on a rank that is no member of a new group, which it makes by split(). The
      // rank has nothing to do.
      .def(
          "perform_nocolor_split", [](ProcessGroupBluefog&, const py::object&) {},
          py::arg("device"))
      .def("flight_log", &flightLog)
      .def_property_readonly("bytes_sent", &ProcessGroupBluefog::bytesSent)
      .def_property_readonly("bytes_read", &ProcessGroupBluefog::bytesRead)
      .def_property_readonly("bytes_written", &ProcessGroupBluefog::bytesWritten)
      .def_property_readonly("operations_issued", &ProcessGroupBluefog::operationsIssued)
      .def_property_readonly("hosts", &ProcessGroupBluefog::hosts)
      .def(
          "count_refused",
          [](ProcessGroupBluefog& self, int64_t tag, int partner) {
            const auto kind = partner < 0 ? bluefog::kNeighborsKind : OpKind::kPairGossip;
            self.countRefused({kind, tag, partner});
          },
          py::arg("tag") = 0, py::arg("partner") = -1, Release())
      .def_property_readonly("calls_made", &ProcessGroupBluefog::callsMade)
      .def("align", &ProcessGroupBluefog::align, py::arg("number"), Release())
      .def("set_part", &ProcessGroupBluefog::setPart, py::arg("part").none(false))
      .def(
          "edges",
          [](const ProcessGroupBluefog& self, double self_weight, const Weights& sources,
             const Weights& destinations, double divisor) {
            return self.edges(
                {self_weight, weighted(sources), weighted(destinations), divisor, {}});
          },
          py::arg("self_weight"), py::arg("sources"), py::arg("destinations"), py::arg("divisor"))
      .def(
          "neighbor_allgather",
          [](ProcessGroupBluefog& self, const at::Tensor& tensor, const Edges& edges, Match& match,
             bool async_op) {
            return first(ended(async_op, [&] {
              return self.neighborGather(OpKind::kNeighborAllGather, tensor,
                                         Tensors(edges.destinations.size(), tensor), edges,
                                         {{match, async_op}, true});
            }));
          },
          py::arg("tensor"), py::arg("edges"), py::arg("match"), py::arg("async_op"))
      .def("neighbor_alltoall", partsOf<OpKind::kNeighborAllToAll>, py::arg("like"),
           py::arg("parts"), py::arg("edges"), py::arg("match"), py::arg("async_op"))
      .def("neighbor_allgather_in_parts", partsOf<OpKind::kNeighborAllGather>, py::arg("like"),
           py::arg("parts"), py::arg("edges"), py::arg("match"), py::arg("async_op"))
      .def("allgather_in_parts", partsOf<OpKind::kNeighborAllGather, true>, py::arg("like"),
           py::arg("parts"), py::arg("edges"), py::arg("match"), py::arg("async_op"))
      .def(
          "hierarchical_neighbor_allreduce",
          [](ProcessGroupBluefog& self, const at::Tensor& tensor, const std::vector<int>& locals,
             const Edges& between, Match& match, bool async_op) {
            return first(ended(async_op, [&] {
              return self.hierarchicalNeighborAllreduce(tensor, locals, between, {match, async_op});
            }));
          },
          py::arg("tensor"), py::arg("locals"), py::arg("between"), py::arg("match"),
          py::arg("async_op"));
  bluefog::addReconfigurable(module);
  bluefog::addAverages(group, edges);
  bluefog::addComposed(module, kPython);
  bluefog::addMessageKernels(module);
  bluefog::addWriteWatch(module);
  bluefog::addWindows(module);

  module.def(
      "start_mpi",
      [](std::chrono::milliseconds limit) {
        bluefog::mpi::World::startEarly(findMpi, bluefog::Deadline::in(limit), checkSignals);
      },
      py::arg("limit"), Release());

  using Client = bluefog::pmix::Client;
  py::class_<Client>(module, "PmixClient")
      .def(py::init<const std::string&>(), py::arg("library"), Release())
      .def_property_readonly("rank", &Client::rank)
      .def_property_readonly("size", &Client::size)
      .def_property_readonly("local_rank", &Client::localRank)
      .def_property_readonly("local_size", &Client::localSize)
      .def("publish", &Client::publish, py::arg("key"), py::arg("text"), Release())
      .def("look", &Client::look, py::arg("rank"), py::arg("key"), py::arg("limit"), Release())
      .def("leave", &Client::leave, Release());

  module.def("shutdown_all", &bluefog::registry::shutdownAll, Release());
  module.def("leave_launcher", &bluefog::mpi::World::leave, Release());
}
