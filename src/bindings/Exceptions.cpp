#include "bindings/Exceptions.hpp"

#include <torch/csrc/Exceptions.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/Error.hpp"

namespace bluefog {
namespace {

namespace py = pybind11;

constexpr const char* kOneEach =
    "\n[bluefog] Each rank needs a GPU of its own, so there must be no more ranks on a host than "
    "GPUs. Each selects its GPU before any other use of CUDA: "
    "torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"])). To have ranks share one on purpose, "
    "set NCCL_HOSTID to something different on each rank (docs/gpu.md).";

// Docstrings of the types. tests/tools/test_examples.py runs their examples.
const char* const kPeerFailed = R"doc(A rank that the operation needs is gone.

`ranks` are all ranks that have died in the group. Where none of those is missing, `ranks` are the
missing ones that left the group.

Thread safety: nothing changes the error after it is raised. It owns its text and `ranks` alone.

Example:
    >>> import os, signal
    >>> if bf.rank() == 3:
    ...     os.kill(os.getpid(), signal.SIGKILL)
    >>> try:
    ...     bf.collectives.allreduce(torch.ones(2))
    ... except bf.PeerFailed as error:
    ...     print(error.ranks)
    [3]
)doc";

const char* const kCollectiveTimeout = R"doc(The deadline of the operation passed.

`ranks` are the ranks that were late.

Thread safety: nothing changes the error after it is raised. It owns its text and `ranks` alone.

Example:
    >>> from datetime import timedelta
    >>> torch.distributed.barrier()
    >>> late = [3]
    >>> try:
    ...     if bf.rank() not in late:
    ...         bf.monitored_barrier(timeout=timedelta(seconds=1))
    ... except bf.CollectiveTimeout as error:
    ...     late = error.ranks
    >>> late
    [3]
)doc";

const char* const kMismatch = R"doc(Ranks that met in one operation called different things.

`ranks` are the ranks that disagree. After a mismatch between neighbors the group goes on; after one
in a collective its collectives are over. It is a ValueError, too, as in BlueFog.

Thread safety: nothing changes the error after it is raised. It owns its text and `ranks` alone.

Example:
    >>> partner = bf.rank() ^ 1
    >>> try:
    ...     bf.pair_gossip(torch.ones(2 + bf.rank()), partner)
    ... except bf.Mismatch as error:
    ...     print(error.ranks == sorted([bf.rank(), partner]))
    True
)doc";

const char* const kAborted = R"doc(The group was aborted or destroyed under the operation.

Thread safety: nothing changes the error after it is raised. It owns its text and `ranks` alone.

Example:
    >>> group = torch.distributed.new_group()
    >>> is_aborted = bf.rank() != 0
    >>> if not is_aborted:
    ...     work = torch.distributed.irecv(torch.ones(1), 1, group=group)  # Nobody sends.
    ...     group._get_backend(torch.device("cpu")).abort()
    ...     try:
    ...         _ = work.wait()
    ...     except bf.Aborted:
    ...         is_aborted = True
    >>> is_aborted
    True
    >>> torch.distributed.barrier()
    >>> torch.distributed.destroy_process_group(group)
)doc";

// They live as long as the process. Guarded by the GIL.
struct Types {
  std::map<Cause, PyObject*> of_cause;
  // Torch raises by type and text alone, so the ranks must be in the type. There is a subclass of
  // the same name for each list of ranks that was ever blamed.
  std::map<std::pair<Cause, std::vector<int>>, PyObject*> of_ranks;
};

Types& types() {
  static Types* const instance = std::make_unique<Types>().release();
  return *instance;
}

void add(py::module_& module, Cause cause, const char* name, const char* doc,
         PyObject* also = nullptr) {
  py::list bases;
  bases.append(py::module_::import("torch.distributed").attr("DistBackendError"));
  if (also != nullptr) {
    bases.append(py::handle(also));
  }
  PyObject* type = PyErr_NewExceptionWithDoc((std::string("bluefog_pg.") + name).c_str(), doc,
                                             py::tuple(bases).ptr(), nullptr);
  module.attr(name) = py::handle(type);
  types().of_cause[cause] = type;
}

PyObject* typeWith(Cause cause, const std::vector<int>& ranks) {
  PyObject*& type = types().of_ranks[{cause, ranks}];
  if (type == nullptr) {
    const py::handle base = types().of_cause.at(cause);
    py::dict members;
    members["ranks"] = ranks;
    members["__doc__"] = base.attr("__doc__");
    const auto name = "bluefog_pg." + base.attr("__name__").cast<std::string>();
    type = PyErr_NewException(name.c_str(), base.ptr(), members.ptr());
  }
  return type;
}

void raise(Cause cause, const std::vector<int>& ranks, const char* text) {
  const py::handle type = types().of_cause.at(cause);
  const py::object instance = type(text);
  instance.attr("ranks") = ranks;
  PyErr_SetObject(type.ptr(), instance.ptr());
}

// A TorchError is an Error in a form that torch can raise in Python, too.
class TorchError : public torch::PyTorchError {
 public:
  explicit TorchError(const Error& error)
      : torch::PyTorchError(error.what()), cause_(error.cause()), ranks_(error.ranks()) {}

  PyObject* python_type() override { return typeWith(cause_, ranks_); }
  void raise() const { bluefog::raise(cause_, ranks_, what()); }

 private:
  Cause cause_;
  std::vector<int> ranks_;
};

// Sets torch's own Python exception for the error, and adds what to do. Returns false if that is
// not known, and has set nothing then.
bool explain(const c10::DistBackendError& error) {
  const std::string text = error.what_without_backtrace();
  if (text.find("Duplicate GPU detected") == std::string::npos) {
    return false;
  }
  const py::object type = py::module_::import("torch.distributed").attr("DistBackendError");
  PyErr_SetString(type.ptr(), (text + kOneEach).c_str());
  return true;
}

void translate(std::exception_ptr pointer) {
  try {
    if (pointer) {
      std::rethrow_exception(pointer);
    }
  } catch (const Error& error) {
    raise(error.cause(), error.ranks(), error.what());
  } catch (const TorchError& error) {
    error.raise();
  } catch (const c10::DistBackendError& error) {
    if (!explain(error)) {
      throw;
    }
  }
}

}  // namespace

void addExceptions(py::module_& module) {
  add(module, Cause::kPeerFailed, "PeerFailed", kPeerFailed);
  add(module, Cause::kTimeout, "CollectiveTimeout", kCollectiveTimeout);
  add(module, Cause::kMismatch, "Mismatch", kMismatch, PyExc_ValueError);
  add(module, Cause::kAborted, "Aborted", kAborted);
  py::register_exception_translator(&translate);
}

std::exception_ptr raisedByTorch(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return std::make_exception_ptr(TorchError(known));
  } catch (...) {
    return error;
  }
}

}  // namespace bluefog
