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

// On an operation that is in a stream of its own, which `done` marks the end of; or, without one,
// that has its place in the caller's. `check` throws where it is known that it has come to nothing.
// The backend tells other failures there in its own way (NCCL by its watchdog).
class AcceleratorWork : public c10d::Work {
 public:
  AcceleratorWork(int rank, c10::Device device, std::vector<at::Tensor> outputs,
                  std::optional<c10::Event> done, std::function<void()> check);

  bool isCompleted() override;
  bool isSuccess() const override { return true; }
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override;
  // Without a timeout the host goes on at once, and the current stream waits.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  // Complete at once, as NCCL's: who waits for it has its stream wait.
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
