#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "process_group/LanguageHooks.hpp"
#include "transport/engine/Engine.hpp"
#include "transport/operations/Op.hpp"

namespace bluefog {

// c10d's handle on a posted operation. Any thread may wait; a waiting thread helps.
class WorkBluefog : public c10d::Work {
 public:
  WorkBluefog(std::shared_ptr<Engine> engine, LanguageHooks::Raised raised, std::shared_ptr<Op> op,
              c10d::OpType type, const char* profiling_title, const std::vector<at::Tensor>& inputs,
              std::vector<at::Tensor> outputs, std::shared_ptr<int> source);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  const std::vector<at::Tensor>& outputs() const { return outputs_; }
  void synchronize() override { wait(); }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  // Fails every pending operation of the group.
  void abort() override;
  // Completes with the list of output tensors.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return op_->sequence; }
  // Milliseconds from the call to the end. Throws before that.
  float getDuration() const override;

  // When the operation has ended, by whoever comes first: closes the profiler's range, completes
  // the future.
  void conclude();
  // Throws if it has failed.
  void check() const;

 private:
  void checkProcess() const;
  void complete(c10::ivalue::Future& future) const;
  bool done() const { return op_->hasEnded(); }

  std::shared_ptr<Engine> engine_;
  const LanguageHooks::Raised raised_;
  std::shared_ptr<Op> op_;
  std::vector<at::Tensor> outputs_;
  std::shared_ptr<int> source_;
  std::mutex future_mutex_;
  bool concluded_ = false;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace bluefog
