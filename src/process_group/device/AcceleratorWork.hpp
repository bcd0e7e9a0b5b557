#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

namespace bluefog {

// An AcceleratorWork is the Work of an operation on an accelerator. If the operation has a stream
// of its own, `done` marks its end there. Without `done` the operation has its place in the
// caller's stream. `check` throws if the operation is known to have failed. Other failures are
// reported by the accelerator's backend in its own way (NCCL has a watchdog). It keeps the outputs.
// Thread safety: any thread may call any method.
class AcceleratorWork : public c10d::Work {
 public:
  AcceleratorWork(int rank, c10::Device device, std::vector<at::Tensor> outputs,
                  std::optional<c10::Event> done, std::function<void()> check);

  bool isCompleted() override;
  bool isSuccess() const override { return true; }
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override;
  // Has the current stream wait for the operation. The host waits, too, if there is a timeout, and
  // otherwise goes on at once.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  // Returns a future that is complete at once, as NCCL's is. A thread that waits for it has the
  // current stream wait.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  const c10::Device device_;
  const std::vector<at::Tensor> outputs_;
  const std::optional<c10::Event> done_;
  const std::function<void()> check_;
  std::mutex mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace bluefog
