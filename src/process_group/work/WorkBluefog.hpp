#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "process_group/Features.hpp"
#include "process_group/GroupHooks.hpp"
#include "process_group/Language.hpp"
#include "transport/engine/Engine.hpp"
#include "transport/operations/Op.hpp"

namespace bluefog {

// A WorkBluefog is c10d's handle on a posted operation. It keeps the engine, the operation and the
// output tensors. A thread in wait() drives the engine if nobody else does.
// Thread safety: any thread may call any method.
class WorkBluefog : public c10d::Work {
 public:
  struct Context {
    Language::Raised raised;
    std::shared_ptr<GroupEvents> events;
  };
  WorkBluefog(std::shared_ptr<Engine> engine, Context context, std::shared_ptr<Op> op,
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
  // Fails every pending operation of the group, and leaves the group.
  void abort() override;
  // Returns a future that completes with the list of output tensors.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return op_->sequence; }
  // Returns the milliseconds from the call to the end. Throws if the operation has not ended.
  float getDuration() const override;
#ifdef C10D_BACKEND_HAS_HOOKS
  std::chrono::milliseconds getTimeout() const override { return op_->deadline.limit(); }
#endif
#ifdef BLUEFOG_C10D_HAS_COMPLETION_HOOKS
  uint64_t getCompletionKey() const override { return completionKey(); }
#endif

  // Closes the profiler's range, calls the hooks and completes the future. It may be called any
  // number of times, once the operation has ended; the first call does it, and later calls wait for
  // the future, if there is one.
  void conclude();
  // Throws the operation's error if it has failed.
  void check() const;

 private:
  // Returns a number that no other Work with the same hooks ever has.
  uint64_t completionKey() const;
  void checkProcess() const;
  void complete(c10::ivalue::Future& future) const;
  bool done() const { return op_->hasEnded(); }

  std::shared_ptr<Engine> engine_;
  const Context context_;
  std::shared_ptr<Op> op_;
  std::vector<at::Tensor> outputs_;
  std::shared_ptr<int> source_;
  std::mutex future_mutex_;
  bool concluded_ = false;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace bluefog
