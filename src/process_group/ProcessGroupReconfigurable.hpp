#pragma once

#include "process_group/ProcessGroupBluefog.hpp"

#ifdef C10D_BACKEND_HAS_RECONFIGURE

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "bootstrap/Endpoint.hpp"
#include "core/OwnProcess.hpp"
#include "process_group/Meeting.hpp"

namespace bluefog {

// ProcessGroupReconfigurable is the c10d backend of a group whose members change. For each epoch it
// makes a ProcessGroupBluefog, to which it passes on all calls; between epochs calls throw. It owns
// the endpoint where other processes call this one, and shares ownership of the current epoch's
// group with the calls that are under way there.
// Thread safety: any thread may call any method. A call that is under way while another thread
// reconfigures fails as when its group is left.
class ProcessGroupReconfigurable : public c10d::Backend {
 public:
  using GroupPtr = c10::intrusive_ptr<ProcessGroupBluefog>;
  // Makes the group of an epoch. Throws what the constructor of ProcessGroupBluefog throws.
  using MakeGroup = std::function<GroupPtr(const Meeting&, c10::intrusive_ptr<bluefog::Options>)>;

  // Meets no other rank yet. Until the first reconfigure(), `rank` and `size` are what the program
  // has said.
  ProcessGroupReconfigurable(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                             c10::intrusive_ptr<bluefog::Options> options, MakeGroup make);
  ~ProcessGroupReconfigurable() override;

  bool supportsReconfigure() const override { return true; }
  // Returns the text by which other processes reach this one. It stays the same.
  c10d::ReconfigureHandle get_reconfigure_handle() const override;
  // Leaves the current epoch and makes the one of these members. Each of them must call it, with
  // the same uuid and handles. It waits for the others, and returns a Work that has ended. Throws
  // Error like the constructor of ProcessGroupBluefog; there is no epoch then, and the next call
  // may make one.
  WorkPtr reconfigure(const c10d::ReconfigureOptions& opts) override;
  // Returns the current epoch's group. Throws if there is none.
  GroupPtr group() const;
  // Has `changed` called when the current epoch has ended.
  void onChange(std::function<void()> changed);

  const std::string getBackendName() const override { return "bluefog"; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  // Aborts the current epoch, or a reconfigure() that is under way, which then throws. The members
  // that wait there for this rank throw, too.
  void abort() override;
  // Leaves the group for good.
  void shutdown() override;

  WorkPtr allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& opts) override {
    return group()->allreduce(tensors, opts);
  }
  WorkPtr allreduce_sparse(std::vector<at::Tensor>& tensors,
                           const c10d::AllreduceOptions& opts) override {
    return group()->allreduce_sparse(tensors, opts);
  }
  WorkPtr allreduce_coalesced(std::vector<at::Tensor>& tensors,
                              const c10d::AllreduceCoalescedOptions& opts) override {
    return group()->allreduce_coalesced(tensors, opts);
  }
  WorkPtr broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& opts) override {
    return group()->broadcast(tensors, opts);
  }
  WorkPtr reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& opts) override {
    return group()->reduce(tensors, opts);
  }
  WorkPtr allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                    const c10d::AllgatherOptions& opts) override {
    return group()->allgather(outputs, inputs, opts);
  }
  WorkPtr all_gather_single(at::Tensor& output, at::Tensor& input,
                            const c10d::AllgatherOptions& opts) override {
    return group()->all_gather_single(output, input, opts);
  }
  WorkPtr allgather_coalesced(std::vector<std::vector<at::Tensor>>& outputs,
                              std::vector<at::Tensor>& inputs,
                              const c10d::AllgatherOptions& opts) override {
    return group()->allgather_coalesced(outputs, inputs, opts);
  }
  WorkPtr all_gather_single_coalesced(std::vector<at::Tensor>& outputs,
                                      std::vector<at::Tensor>& inputs,
                                      const c10d::AllgatherOptions& opts) override {
    return group()->all_gather_single_coalesced(outputs, inputs, opts);
  }
  WorkPtr gather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                 const c10d::GatherOptions& opts) override {
    return group()->gather(outputs, inputs, opts);
  }
  WorkPtr gather_single(at::Tensor& output, at::Tensor& input,
                        const c10d::GatherOptions& opts) override {
    return group()->gather_single(output, input, opts);
  }
  WorkPtr scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                  const c10d::ScatterOptions& opts) override {
    return group()->scatter(outputs, inputs, opts);
  }
  WorkPtr reduce_scatter(std::vector<at::Tensor>& outputs,
                         std::vector<std::vector<at::Tensor>>& inputs,
                         const c10d::ReduceScatterOptions& opts) override {
    return group()->reduce_scatter(outputs, inputs, opts);
  }
  WorkPtr reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                const c10d::ReduceScatterOptions& opts) override {
    return group()->reduce_scatter_single(output, input, opts);
  }
  WorkPtr reduce_scatter_single_coalesced(std::vector<at::Tensor>& outputs,
                                          std::vector<at::Tensor>& inputs,
                                          const c10d::ReduceScatterOptions& opts) override {
    return group()->reduce_scatter_single_coalesced(outputs, inputs, opts);
  }
  WorkPtr alltoall(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                   const c10d::AllToAllOptions& opts) override {
    return group()->alltoall(outputs, inputs, opts);
  }
  WorkPtr all_to_all_single(at::Tensor& output, at::Tensor& input,
                            std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                            const c10d::AllToAllOptions& opts) override {
    return group()->all_to_all_single(output, input, output_splits, input_splits, opts);
  }
  WorkPtr barrier(const c10d::BarrierOptions& opts) override { return group()->barrier(opts); }
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override {
    group()->monitoredBarrier(opts, wait_all_ranks);
  }
  WorkPtr send(std::vector<at::Tensor>& tensors, int destination, int tag) override {
    return group()->send(tensors, destination, tag);
  }
  WorkPtr recv(std::vector<at::Tensor>& tensors, int source, int tag) override {
    return group()->recv(tensors, source, tag);
  }
  WorkPtr recvAnysource(std::vector<at::Tensor>& tensors, int tag) override {
    return group()->recvAnysource(tensors, tag);
  }
  bool supportsWindow() const override { return true; }
  // A window belongs to the current epoch, and ends with it.
  c10::intrusive_ptr<c10d::Window> new_window(const std::optional<at::Tensor>& tensor) override {
    return group()->new_window(tensor);
  }
  bool supportsCoalescing() const override;
  void startCoalescing() override { group()->startCoalescing(); }
  WorkPtr endCoalescing() override { return group()->endCoalescing(); }
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(
      const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
      const c10::intrusive_ptr<c10d::Backend::Options>& opts) override {
    return group()->split(store, ranks, opts);
  }
  c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& opts,
                                          const int& rank, const int& size) override {
    return group()->merge(store, opts, rank, size);
  }
  void enableCollectivesTiming() override {}
  // Says what has failed in the current epoch. An abort is no failure here, because a reconfigure()
  // follows it.
  c10d::ErrorType getError() override;
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return group()->getSequenceNumberForGroup(); }
  // The hooks stay for all epochs.
#ifdef BLUEFOG_C10D_HAS_COMPLETION_HOOKS
  // Keys of an accelerator's Works may equal those of ours.
  bool supportsCompletionHooks() const override { return options_->accelerator.empty(); }
  void registerCompletionHook(int64_t id, c10d::CompletionHook hook) override {
    hooks_->addCompletion(id, std::move(hook));
  }
  void unregisterCompletionHook(int64_t id) override { hooks_->completion.remove(id); }
#endif
  virtual bool supportsAbortHooks() const { return true; }
  void registerAbortHook(int64_t id, c10d::AbortHook hook) override {
    hooks_->abort.add(id, std::move(hook));
  }
  void unregisterAbortHook(int64_t id) override { hooks_->abort.remove(id); }

 private:
  // Returns the handles in the order of their ranks.
  static std::vector<std::string> ordered(const c10d::ReconfigureOptions& opts);
  static Epoch epochOf(const c10d::ReconfigureOptions& opts, const RankRecord& self);
  // Returns the endpoint. Throws if the group was left for good.
  std::shared_ptr<Endpoint> endpoint() const;
  void checkProcess() const;
  // Ends the current epoch, if there is one.
  void leaveEpoch();
  GroupPtr current() const;

  const c10::intrusive_ptr<c10d::Store> store_;
  const c10::intrusive_ptr<bluefog::Options> options_;
  const MakeGroup make_;
  const OwnProcess process_;
  const std::shared_ptr<GroupHooks> hooks_ = std::make_shared<GroupHooks>();
  mutable std::mutex reconfiguring_;
  std::set<int64_t> uuids_;  // of all epochs so far
  mutable std::mutex mutex_;
  std::shared_ptr<Endpoint> endpoint_;   // null once the group was left for good
  GroupPtr group_;                       // null between epochs
  std::atomic<bool> is_aborted_{false};  // this rank has aborted the current epoch
  std::atomic<bool> gives_up_{false};    // a reconfigure() that is under way has to end
  std::vector<std::function<void()>> changed_;
};

}  // namespace bluefog

#endif  // C10D_BACKEND_HAS_RECONFIGURE
