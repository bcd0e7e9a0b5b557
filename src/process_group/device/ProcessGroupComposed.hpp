#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "process_group/ProcessGroupBluefog.hpp"
#include "process_group/device/Accelerator.hpp"
#include "process_group/device/DeviceCalls.hpp"

namespace bluefog {

// ProcessGroupComposed is the backend of a group that has an accelerator. A collective that is
// called with the accelerator's tensors goes to torch's own backend for that device, whose Work,
// Future, streams and errors come back untouched. An operation between neighbors is made of that
// backend's messages. A call with tensors on the CPU is ProcessGroupBluefog's. The group shares
// ownership of its accelerator.
// Thread safety: any thread may call any method, once setAccelerator() has returned.
class ProcessGroupComposed : public ProcessGroupBluefog {
 public:
  // setAccelerator() must be called before anything is called with the accelerator's tensors, or
  // about it.
  using ProcessGroupBluefog::ProcessGroupBluefog;
  ~ProcessGroupComposed() override { leave(); }
  void setAccelerator(std::shared_ptr<Accelerator> accelerator);
  const std::shared_ptr<Accelerator>& accelerator() const { return accelerator_; }
  const c10::intrusive_ptr<c10d::Backend>& backend() const {
    TORCH_CHECK(accelerator() != nullptr, who("backend"), "it has no accelerator yet");
    return accelerator()->backend();
  }

  void setTimeout(std::chrono::milliseconds timeout) override;
#ifdef C10D_BACKEND_HAS_HOOKS
  // Reaches the accelerator's backend alone, as the host has no such extension of its timeout.
  void addEphemeralTimeout(const std::chrono::milliseconds& timeout) override {
    backend()->addEphemeralTimeout(timeout);
  }
#endif
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
#ifdef C10D_BACKEND_HAS_HOOKS
  WorkPtr gather_single(at::Tensor& output, at::Tensor& input,
                        const c10d::GatherOptions& opts) override;
#endif
  // Runs the barrier of the accelerator's backend if the options name its device.
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  WorkPtr send(std::vector<at::Tensor>& tensors, int destination, int tag) override;
  WorkPtr recv(std::vector<at::Tensor>& tensors, int source, int tag) override;
  WorkPtr recvAnysource(std::vector<at::Tensor>& tensors, int tag) override;

  WorkPtr neighborAllreduce(OpKind kind, const std::vector<at::Tensor>& inputs, const Edges& edges,
                            const MessageOptions& opts) override;
  std::vector<at::Tensor> neighborAllreduceNow(OpKind kind, const std::vector<at::Tensor>& inputs,
                                               const Edges& edges, Match& match) override;
  at::Tensor neighborAllreduceNow(OpKind kind, const at::Tensor& input, const Edges& edges,
                                  Match& match) override;
  WorkPtr neighborGather(OpKind kind, const at::Tensor& like, const std::vector<at::Tensor>& inputs,
                         const Edges& edges, const GatherOptions& opts) override;
  WorkPtr hierarchicalNeighborAllreduce(const at::Tensor& input, const std::vector<int>& locals,
                                        const Edges& between, const MessageOptions& opts) override;
  void countRefused(Counter counter) override;
  WindowResources windowResources(const at::Tensor& tensor) override;
  uint64_t bytesSent() const override {
    return ProcessGroupBluefog::bytesSent() + (accelerator_ ? accelerator_->bytesSent() : 0);
  }

  // Returns what the accelerator's backend does, because torch asks without saying for which
  // device, and NCCL needs it. So a batch of messages of CPU tensors has one Work, too.
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
#ifdef BLUEFOG_C10D_HAS_COMPLETION_HOOKS
  bool isInitialized() override { return backend()->isInitialized(); }
  void startTimeEstimate() override { backend()->startTimeEstimate(); }
  float endTimeEstimate() override { return backend()->endTimeEstimate(); }
  // The keys of the accelerator's Works may be equal to those of the host's.
  bool supportsCompletionHooks() const override { return false; }
#endif
  // Returns the host's error, or else that of the accelerator's backend.
  c10d::ErrorType getError() override {
    const c10d::ErrorType own = ProcessGroupBluefog::getError();
    return own != c10d::ErrorType::SUCCESS ? own : backend()->getError();
  }
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
  // Returns the device's backend, ready to be called. The calling thread's batch is begun on it,
  // too, and it has been told what torch tells this object alone.
  c10d::Backend& deviceBackend();
  // Returns whether a call with these tensors goes to the device's backend. Throws if they are on
  // different devices. Throws if the call would go to the device and an earlier one there has
  // failed.
  template <class... Tensors>
  bool isForDevice(const char* op, const Tensors&... tensors) const;
  bool isOnDevice(const at::Tensor& tensor) const {
    return accelerator_ != nullptr && accelerator_->carries(tensor);
  }
  bool isOfAccelerator(c10::Device device) const {
    return accelerator_ != nullptr && accelerator_->type() == device.type();
  }
  // Returns whether any of the tensors is on the device. The call then requires it of all of them.
  bool isAnyOnDevice(const std::vector<at::Tensor>& tensors) const;
  Validate validateOnDevice(const char* op, const std::vector<at::Tensor>& tensors);
  WorkPtr exchange(const DeviceCall& call, bool async_op,
                   const std::function<WorkPtr(Notices&)>& exchange);
  WorkPtr averageOnDevice(OpKind kind, const std::vector<at::Tensor>& inputs, const Edges& edges,
                          const MessageOptions& opts);
  WorkPtr gatherOnDevice(OpKind kind, const at::Tensor& like, const std::vector<at::Tensor>& inputs,
                         const Edges& edges, const GatherOptions& opts);
  WorkPtr averageMachinesOnDevice(const at::Tensor& input, const std::vector<int>& locals,
                                  const Edges& between, const MessageOptions& opts);
  // Returns whether the device's backend may be used. A forked child has no part in what its
  // parent's backend has under way.
  bool reachesDevice() const { return accelerator_ != nullptr && !engine()->isForked(); }

  // Returns `group` with an accelerator whose backend is `inner`, or null if `group` is null.
  c10::intrusive_ptr<c10d::Backend> composed(c10::intrusive_ptr<c10d::Backend> group,
                                             c10::intrusive_ptr<c10d::Backend> inner) const;

  std::shared_ptr<Accelerator> accelerator_;
  std::unique_ptr<DeviceCalls> device_calls_;
  std::once_flag told_;  // what deviceBackend() tells the device's backend
};

}  // namespace bluefog
