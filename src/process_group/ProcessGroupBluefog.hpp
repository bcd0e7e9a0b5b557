#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/Algorithms.hpp"
#include "process_group/Options.hpp"
#include "process_group/OutputPool.hpp"
#include "process_group/Validate.hpp"
#include "transport/Engine.hpp"

namespace bluefog {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// The c10d backend: validates, makes an Op, posts it. No algorithm is here. CPU tensors, ranks on
// one host. All methods may be called from any thread.
class ProcessGroupBluefog : public c10d::Backend {
 public:
  // Meets the other ranks through the store; throws Error naming those who do not come within the
  // timeout, or die meanwhile. For `interrupt` see Engine.
  ProcessGroupBluefog(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                      c10::intrusive_ptr<bluefog::Options> options, Engine::Interrupt interrupt);
  ~ProcessGroupBluefog() override;

  const std::string getBackendName() const override { return "bluefog"; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;

  WorkPtr allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                    const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& opts) override;
  WorkPtr reduce_scatter(std::vector<at::Tensor>& outputs,
                         std::vector<std::vector<at::Tensor>>& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  WorkPtr send(std::vector<at::Tensor>& tensors, int destination, int tag) override;
  WorkPtr recv(std::vector<at::Tensor>& tensors, int source, int tag) override;
  WorkPtr recvAnysource(std::vector<at::Tensor>& tensors, int tag) override;

  struct NeighborOptions {
    double self_weight = 1.0;
    std::vector<WeightedRank> sources;       // group ranks; summed in this order
    std::vector<WeightedRank> destinations;  // group ranks
    double divisor = 1.0;
    bool async_op = false;
  };
  // output = (self_weight * input + sum of weight_i * what source i sends) / divisor, a new tensor:
  // the Work's result().
  WorkPtr neighborAllreduce(const at::Tensor& input, const NeighborOptions& opts);

  // Not there yet: these raise NotImplementedError naming the call.
  WorkPtr allreduce_sparse(std::vector<at::Tensor>&, const c10d::AllreduceOptions&) override;
  WorkPtr allreduce_coalesced(std::vector<at::Tensor>&,
                              const c10d::AllreduceCoalescedOptions&) override;
  WorkPtr reduce(std::vector<at::Tensor>&, const c10d::ReduceOptions&) override;
  WorkPtr allgather_coalesced(std::vector<std::vector<at::Tensor>>&, std::vector<at::Tensor>&,
                              const c10d::AllgatherOptions&) override;
  WorkPtr allgather_into_tensor_coalesced(std::vector<at::Tensor>&, std::vector<at::Tensor>&,
                                          const c10d::AllgatherOptions&) override;
  WorkPtr gather(std::vector<std::vector<at::Tensor>>&, std::vector<at::Tensor>&,
                 const c10d::GatherOptions&) override;
  WorkPtr scatter(std::vector<at::Tensor>&, std::vector<std::vector<at::Tensor>>&,
                  const c10d::ScatterOptions&) override;
  WorkPtr reduce_scatter_tensor_coalesced(std::vector<at::Tensor>&, std::vector<at::Tensor>&,
                                          const c10d::ReduceScatterOptions&) override;
  WorkPtr alltoall_base(at::Tensor&, at::Tensor&, std::vector<int64_t>&, std::vector<int64_t>&,
                        const c10d::AllToAllOptions&) override;
  WorkPtr alltoall(std::vector<at::Tensor>&, std::vector<at::Tensor>&,
                   const c10d::AllToAllOptions&) override;
  void monitoredBarrier(const c10d::BarrierOptions&, bool) override;

  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return issued_.load(); }

  // Fails what is pending, here and so on every rank that waits for this one.
  void abort() override;
  // Leaves the group. Waits for no peer; what is pending fails.
  void shutdown() override;

  // Payload bytes handed to peers, and operations issued, since the group was made.
  uint64_t bytesSent() const {
    return engine_->board().bytesSent() + engine_->returns().bytesSent() +
           engine_->mailbox().bytesSent();
  }
  uint64_t operationsIssued() const { return issued_.load(); }

 private:
  struct Call;

  WorkPtr post(Call&& call);
  WorkPtr receive(std::vector<at::Tensor>& tensors, int source, int tag, const char* title,
                  c10d::OpType type, const char* profiling_title);
  Deadline deadline(std::chrono::milliseconds timeout) const;
  void checkProcess(const char* op) const;
  [[noreturn]] void notImplemented(const char* call) const;

  const c10::intrusive_ptr<bluefog::Options> options_;
  std::atomic<int64_t> timeout_ms_;
  std::atomic<uint64_t> issued_{0};
  OutputPool outputs_;
  std::shared_ptr<Engine> engine_;
};

}  // namespace bluefog
