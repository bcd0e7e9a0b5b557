#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <exception>
#include <utility>
#include <vector>

namespace bluefog {

// A FailedWork is the Work of an operation that had failed when the asynchronous call returned. It
// throws the error to each thread that waits for it.
// Thread safety: any thread may call any method.
class FailedWork : public c10d::Work {
 public:
  FailedWork(int rank, std::exception_ptr error) : c10d::Work(rank, c10d::OpType::UNKNOWN) {
    finish(std::move(error));
  }

  void synchronize() override { std::rethrow_exception(exception()); }
  std::vector<at::Tensor> result() override { std::rethrow_exception(exception()); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future =
        c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future->setError(exception());
    return future;
  }
};

}  // namespace bluefog
