#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "bindings/WriteWatch.hpp"
#include "core/Fingerprint.hpp"

namespace bluefog {

namespace py = pybind11;

namespace {

// A WriteWatch remembers what tensors hold, and tells whether a program has written to them since.
// It keeps the tensors.
class WriteWatch {
 public:
  explicit WriteWatch(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {
    before_.reserve(tensors_.size());
    for (const at::Tensor& tensor : tensors_) {
      before_.push_back({tensor._version(), tensor.const_data_ptr(), print(tensor)});
    }
  }

  // Returns whether a tensor has had an in-place operation, or has got other memory. Torch keeps
  // account of both, so all ranks of one program see the same.
  bool leavesATrace() const {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (before_[i].version != tensors_[i]._version() ||
          before_[i].memory != tensors_[i].const_data_ptr()) {
        return true;
      }
    }
    return false;
  }

  // Returns the index of a tensor whose bytes have changed, or nothing if none has. It does not
  // look at tensors on devices, because a look would wait for the device.
  std::optional<size_t> changed() const {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (before_[i].print != print(tensors_[i])) {
        return i;
      }
    }
    return std::nullopt;
  }

 private:
  struct Watched {
    int64_t version;
    const void* memory;
    uint64_t print;
  };

  static uint64_t print(const at::Tensor& tensor) {
    const bool is_here = tensor.is_cpu() && tensor.is_non_overlapping_and_dense();
    return is_here ? fingerprint(tensor.const_data_ptr(), tensor.nbytes()) : 0;
  }

  std::vector<at::Tensor> tensors_;
  std::vector<Watched> before_;
};

}  // namespace

void addWriteWatch(py::module_& module) {
  using Release = py::call_guard<py::gil_scoped_release>;
  py::class_<WriteWatch>(module, "WriteWatch")
      .def(py::init<std::vector<at::Tensor>>(), py::arg("tensors"), Release())
      .def("leaves_a_trace", &WriteWatch::leavesATrace)
      .def("changed", &WriteWatch::changed, Release());
}

}  // namespace bluefog
