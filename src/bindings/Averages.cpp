// This file adds methods by CPython's own calling convention. That of pybind11 takes half as long
// as a whole exchange of a few bytes, and for each tensor of a list as long as averaging the
// tensor.
#include "bindings/Averages.hpp"

#include <torch/csrc/autograd/python_variable.h>

#include <utility>
#include <vector>

#include "process_group/ProcessGroupBluefog.hpp"
#include "process_group/host/Borrowed.hpp"

namespace bluefog {
namespace {

namespace py = pybind11;
using Tensors = std::vector<at::Tensor>;

PyTypeObject* edges_type = nullptr;

struct AverageCall {
  ProcessGroupBluefog& group;
  OpKind kind;
  const Edges& edges;
  Match& match;
  bool async_op;
};

PyObject* none() {
  return py::none().release().ptr();
}

bool keepsGraph(const AverageCall& call) {
  return !call.async_op && at::GradMode::is_enabled();
}

// Returns the tensor that an argument is, which must hold it for as long as it is used. Throws
// TypeError if it is none.
const at::Tensor& tensorOf(const AverageCall& call, PyObject* given) {
  TORCH_CHECK_TYPE(THPVariable_Check(given), call.group.who(call.kind),
                   "expected a torch.Tensor or a list of them, got ", Py_TYPE(given)->tp_name);
  return THPVariable_Unpack(given);
}

// Begins an asynchronous call, and returns its Work.
PyObject* begun(const AverageCall& call, const Tensors& inputs) {
  WorkPtr work;
  {
    const py::gil_scoped_release release;
    work = call.group.neighborAllreduce(call.kind, inputs, call.edges, {call.match, true});
  }
  return py::cast(std::move(work)).release().ptr();
}

PyObject* ofOne(const AverageCall& call, const at::Tensor& input) {
  if (keepsGraph(call) && input.requires_grad()) {
    return none();
  }
  if (call.async_op) {
    return begun(call, {input});
  }
  at::Tensor output;
  {
    const py::gil_scoped_release release;
    output = call.group.neighborAllreduceNow(call.kind, input, call.edges, call.match);
  }
  return THPVariable_Wrap(std::move(output));
}

PyObject* listOf(Tensors&& tensors) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(tensors.size()));
  for (size_t i = 0; i < tensors.size(); ++i) {
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), THPVariable_Wrap(std::move(tensors[i])));
  }
  return list;
}

PyObject* ofMany(const AverageCall& call, PyObject* list) {
  // The tuple holds the tensors, because another thread may change the list meanwhile.
  const auto held = py::reinterpret_steal<py::tuple>(PyList_AsTuple(list));
  Borrowed inputs;
  inputs.reserve(held.size());
  bool requires_grad = false;
  try {
    for (size_t i = 0; i < held.size(); ++i) {
      inputs.add(tensorOf(call, PyTuple_GET_ITEM(held.ptr(), static_cast<Py_ssize_t>(i))));
      requires_grad |= inputs.all().back().requires_grad();
    }
  } catch (const c10::Error&) {
    if (call.match.number == 0) {
      call.group.countRefused(counterOf(call.kind, call.edges, call.match.tag));
    }
    throw;
  }
  if (requires_grad && keepsGraph(call)) {
    return none();
  }
  if (call.async_op) {
    return begun(call, Tensors(inputs.all()));
  }
  Tensors outputs;
  {
    const py::gil_scoped_release release;
    outputs = call.group.neighborAllreduceNow(call.kind, inputs.all(), call.edges, call.match);
  }
  return listOf(std::move(outputs));
}

// Returns the C++ object of a Python object that pybind11 has made. Throws TypeError if its
// __init__ was not called.
template <class T>
T& held(PyObject* object) {
  auto* instance = reinterpret_cast<py::detail::instance*>(object);
  T* value = instance->get_value_and_holder().value_ptr<T>();
  TORCH_CHECK_TYPE(value != nullptr, Py_TYPE(object)->tp_name, ".__init__ has not been called");
  return *value;
}

template <OpKind kind>
PyObject* average(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  try {
    TORCH_CHECK_TYPE(n == 4, "expected (tensors, edges, match, async_op)");
    TORCH_CHECK_TYPE(Py_TYPE(args[1]) == edges_type, "expected Edges, got ",
                     Py_TYPE(args[1])->tp_name);
    const bool is_tag = PyLong_Check(args[2]);
    Match plain{is_tag ? py::cast<int64_t>(py::handle(args[2])) : 0};
    const AverageCall call{held<ProcessGroupBluefog>(self), kind, held<Edges>(args[1]),
                           is_tag ? plain : py::cast<Match&>(py::handle(args[2])),
                           args[3] == Py_True};
    return PyList_Check(args[0]) ? ofMany(call, args[0]) : ofOne(call, tensorOf(call, args[0]));
  } catch (...) {
    py::detail::try_translate_exceptions();
    return nullptr;
  }
}

template <OpKind kind>
void add(const py::handle& group, const char* name, const char* doc) {
  static PyMethodDef method{
      name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&average<kind>)),
      METH_FASTCALL, doc};
  auto* type = reinterpret_cast<PyTypeObject*>(group.ptr());
  group.attr(name) = py::reinterpret_steal<py::object>(PyDescr_NewMethod(type, &method));
}

}  // namespace

void addAverages(const py::handle& group, const py::handle& edges) {
  edges_type = reinterpret_cast<PyTypeObject*>(edges.ptr());
  add<OpKind::kNeighborAllReduce>(
      group, "neighbor_allreduce",
      "neighbor_allreduce($self, tensors, edges, match, async_op, /)\n--\n\n"
      "Average a tensor or a list of them; return None where a gradient has to flow.");
  add<OpKind::kPairGossip>(group, "pair_gossip",
                           "pair_gossip($self, tensor, edges, match, async_op, /)\n--\n\n"
                           "None where a gradient has to flow.");
}

}  // namespace bluefog
