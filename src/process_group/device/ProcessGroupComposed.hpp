#pragma once

#include <torch/headeronly/version.h>

#include <mutex>
#include <string>
#include <unordered_map>

#include "process_group/ProcessGroupBluefog.hpp"

namespace bluefog {

// With an accelerator: what is called with its tensors goes to its backend, and Work, Future,
// streams and errors come back untouched. All else is ProcessGroupBluefog's.
class ProcessGroupComposed : public ProcessGroupBluefog {
 public:
  // An accelerator has to be set before anything is called with its tensors, or about it.
  using ProcessGroupBluefog::ProcessGroupBluefog;
  const c10::intrusive_ptr<c10d::Backend>& backend() const {
    TORCH_CHECK(accelerator() != nullptr, who("backend"), "it has no accelerator yet");
    return accelerator()->backend();
  }

  void setTimeout(std::chrono::milliseconds timeout) override;
  void setGroupUid(const std::string& uid) override;

  WorkPtr allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_sparse(std::vector<at::Tensor>& tensors,
                           const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(std::vector<at::Tensor>& tensors,
                              const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                    const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(std::vector<std::vector<at::Tensor>>& outputs,
                              std::vector<at::Tensor>& inputs,
                              const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                          std::vector<at::Tensor>& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                 const c10d::GatherOptions& opts) override;
  WorkPtr scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                  const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(std::vector<at::Tensor>& outputs,
                         std::vector<std::vector<at::Tensor>>& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                          std::vector<at::Tensor>& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                   const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& opts) override;
  // The accelerator's where the options name its device.
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  WorkPtr send(std::vector<at::Tensor>& tensors, int destination, int tag) override;
  WorkPtr recv(std::vector<at::Tensor>& tensors, int source, int tag) override;
  WorkPtr recvAnysource(std::vector<at::Tensor>& tensors, int tag) override;

  // torch asks without saying for which device. NCCL needs it; then a batch of a CPU's messages has
  // one Work, too.
  bool supportsCoalescing() const override { return backend()->supportsCoalescing(); }
  WorkPtr endCoalescing() override;

  c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& opts,
                                          const int& rank, const int& size) override;
  void eagerConnectSingleDevice(at::Device device) override;

  bool supportsTimeEstimation() const override { return backend()->supportsTimeEstimation(); }
  void registerOnCompletionHook(
      std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override;
  void waitForPendingWorks() override { backend()->waitForPendingWorks(); }
  void enableCollectivesTiming() override;
  c10d::ErrorType getError() override { return backend()->getError(); }
  std::shared_ptr<c10::Allocator> getMemAllocator() override {
    return backend()->getMemAllocator();
  }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {
    return backend()->allocateTensor(size, options);
  }
  bool supportsTensorAlloc(c10::DeviceIndex device) override {
    return backend()->supportsTensorAlloc(device);
  }
#if TORCH_VERSION_MINOR >= 13
  void suspend() override { backend()->suspend(); }
  void resume() override { backend()->resume(); }
  std::unordered_map<std::string, uint64_t> getMemoryStats() override {
    return backend()->getMemoryStats();
  }
#endif
  void abort() override;
  void shutdown() override;

 protected:
  c10::intrusive_ptr<c10d::Backend> splitIn(
      const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
      const c10::intrusive_ptr<c10d::Backend::Options>& opts) override;
  c10::intrusive_ptr<ProcessGroupBluefog> sibling(
      const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
      c10::intrusive_ptr<bluefog::Options> options) const override;

 private:
  // Where its operations are called: this thread's batch begins there, too, and it has been told
  // what torch tells this object alone.
  c10d::Backend& there();
  // Whether a call with these tensors goes there. Throws where some would and some would not, and
  // where no call can go there any more.
  template <class... Tensors>
  bool goesThere(const char* op, const Tensors&... tensors) const;

  c10::intrusive_ptr<c10d::Backend> composed(c10::intrusive_ptr<c10d::Backend> group,
                                             c10::intrusive_ptr<c10d::Backend> inner) const;

  std::once_flag told_;
};

}  // namespace bluefog
