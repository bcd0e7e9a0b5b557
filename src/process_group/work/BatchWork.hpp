#pragma once

#include <chrono>
#include <exception>
#include <utility>
#include <vector>

#include "process_group/Features.hpp"

namespace bluefog {

// A BatchWork is the one Work of several operations, whose Works it keeps.
// Thread safety: any thread may call any method.
class BatchWork : public c10d::Work {
 public:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

  BatchWork(int rank, Works works)
      : c10d::Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {}

  bool isCompleted() override;
  bool isSuccess() const override;
  // Returns the error of the first operation in the list that has failed.
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override { wait(); }
  // Waits for all of them, one after the other. `timeout` holds for each of these waits.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
#ifdef C10D_BACKEND_HAS_HOOKS
  // Returns the longest time that one of the operations may take.
  std::chrono::milliseconds getTimeout() const override;
#endif
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  Works works_;
};

}  // namespace bluefog
