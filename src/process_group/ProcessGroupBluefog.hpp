#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/Algorithms.hpp"
#include "process_group/FlightLog.hpp"
#include "process_group/LanguageHooks.hpp"
#include "process_group/Options.hpp"
#include "process_group/host/Coalescing.hpp"
#include "process_group/host/Edges.hpp"
#include "process_group/host/Match.hpp"
#include "process_group/host/OutputPool.hpp"
#include "process_group/host/Splits.hpp"
#include "process_group/host/Validate.hpp"
#include "process_group/window/GroupWindows.hpp"
#include "process_group/window/WindowResources.hpp"
#include "transport/engine/Engine.hpp"

namespace bluefog {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// The c10d backend for tensors on the CPU. A call validates its arguments, makes an Op and posts it
// to the group's Engine, which the backend owns; the algorithms are elsewhere. ProcessGroupComposed
// overrides what an accelerator's tensors need.
//
// Thread safety: any thread may call any method.
class ProcessGroupBluefog : public c10d::Backend {
 public:
  // Meets the other ranks through the store; throws Error naming those who do not come within the
  // timeout, or die meanwhile.
  ProcessGroupBluefog(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                      c10::intrusive_ptr<bluefog::Options> options, LanguageHooks hooks);
  ~ProcessGroupBluefog() override;

  const std::string getBackendName() const override { return "bluefog"; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;

  WorkPtr allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& opts) override;
  // Sums sparse (COO) tensors, in place. allreduce() comes here with one.
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
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  // A barrier after which the group is as it was even where ranks did not come: rank 0 throws,
  // naming the first of them, or all.
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;
  WorkPtr send(std::vector<at::Tensor>& tensors, int destination, int tag) override;
  WorkPtr recv(std::vector<at::Tensor>& tensors, int source, int tag) override;
  WorkPtr recvAnysource(std::vector<at::Tensor>& tensors, int tag) override;

  // What the calling thread calls in between is issued without waiting; endCoalescing()'s Work is
  // for all of it. supportsCoalescing() stays false: with it, batch_isend_irecv would give one Work
  // where it gives one per operation on gloo.
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  // Ends when this one does: a group of some of its ranks that c10d knows nothing of.
  void setPart(c10::intrusive_ptr<ProcessGroupBluefog> part);

  struct MessageOptions {
    Match& match;
    bool async_op = false;
  };
  // Throws where they are none of this rank; to be called once for any number of operations.
  std::shared_ptr<Edges> edges(Edges&& edges) const;
  // The results are new tensors: the Work's result(). Here one for each input; all travel as one.
  // `kind`: neighbor_allreduce, or what is one by another name.
  virtual WorkPtr neighborAllreduce(OpKind kind, const std::vector<at::Tensor>& inputs,
                                    const Edges& edges, const MessageOptions& opts);
  // Waited for. A small tensor, where nothing else is under way, takes a shorter way.
  virtual std::vector<at::Tensor> neighborAllreduceNow(OpKind kind,
                                                       const std::vector<at::Tensor>& inputs,
                                                       const Edges& edges, Match& match);
  virtual at::Tensor neighborAllreduceNow(OpKind kind, const at::Tensor& input, const Edges& edges,
                                          Match& match);
  struct GatherOptions : MessageOptions {
    bool in_one = false;
    bool is_of_all = false;  // called as allgather
  };
  // An input for each destination, of the type and shape of `like` but for the first dimension. A
  // result for each source, or one that has their rows one after the other.
  virtual WorkPtr neighborGather(OpKind kind, const at::Tensor& like,
                                 const std::vector<at::Tensor>& inputs, const Edges& edges,
                                 const GatherOptions& opts);
  // Averages machines' means: `locals` are the ranks of this one, ascending, and `between` has the
  // ranks on other machines that have this rank's place there.
  virtual WorkPtr hierarchicalNeighborAllreduce(const at::Tensor& input,
                                                const std::vector<int>& locals,
                                                const Edges& between, const MessageOptions& opts);

  // A group of those ranks of this one, in that order; null on the others. Collective over its
  // members only.
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(
      const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
      const c10::intrusive_ptr<c10d::Backend::Options>& opts) override;
  // A group of `size` ranks that meet in that store, of this group or not.
  c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& opts,
                                          const int& rank, const int& size) override;
  // A call of neighbors that is refused counts all the same, as one that exchanges nothing: else
  // this rank's later calls would meet the others' earlier ones.
  virtual void countRefused(Counter counter);
  // The highest number of this rank's calls of neighbors, by any counter; and all of them go on
  // from there.
  uint64_t callsMade() { return engine_->callsMade(); }
  void align(uint64_t number);
  // Each Work knows its duration anyway.
  void enableCollectivesTiming() override {}

  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return issued_.load(); }

  // Fails what is pending, here and so on every rank that waits for this one.
  void abort() override;
  // Leaves the group. Waits for no peer; what is pending fails.
  void shutdown() override;

  // What a window over this tensor takes from the group.
  virtual WindowResources windowResources(const at::Tensor& tensor);

  // Payload bytes handed to peers, and operations issued, since the group was made.
  uint64_t bytesRead() const { return engine_->mailbox().bytesRead(); }
  uint64_t bytesWritten() const { return engine_->mailbox().bytesWritten(); }
  virtual uint64_t bytesSent() const {
    return engine_->board().bytesSent() + engine_->returns().bytesSent() +
           engine_->mailbox().bytesSent();
  }
  uint64_t operationsIssued() const { return issued_.load(); }
  // The ranks of each host; hosts in the order of their first ranks.
  const std::vector<std::vector<int>>& hosts() const { return engine_->hosts().all(); }
  FlightLog& flightLog() { return log_; }
  // How what such an operation raises begins.
  std::string who(OpKind kind) const { return Validate(engine_->members(), name(kind)).who(); }

 protected:
  // Without an accelerator, for split() and merge().
  virtual c10::intrusive_ptr<ProcessGroupBluefog> sibling(
      const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
      c10::intrusive_ptr<bluefog::Options> options) const;
  // split(), in a store that no other part uses.
  virtual c10::intrusive_ptr<c10d::Backend> splitIn(
      const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
      const c10::intrusive_ptr<c10d::Backend::Options>& opts);
  const LanguageHooks& hooks() const { return hooks_; }
  const std::shared_ptr<Engine>& engine() const { return engine_; }
  std::string who(const char* op) const { return Validate(engine_->members(), op).who(); }
  Coalescing& coalescing() { return coalescing_; }
  // The calling thread's.
  Coalescing::Batch endBatch();
  GroupWindows& windows() { return windows_; }
  void noteIssued() { ++issued_; }
  std::chrono::milliseconds groupsTimeout() const {
    return std::chrono::milliseconds(timeout_ms_.load());
  }
  // Leaves the group, if this rank has not left it yet.
  void leave();
  // Throws in a forked child, which has no part in the group.
  void checkProcess(const char* op) const;
  // Throws where these are not the ranks of this rank's machine.
  void checkMachine(const Validate& validate, const std::vector<int>& locals) const;
  static const char* profilingTitle(OpKind kind);
  // Runs `post`. A call that it refuses is counted; see countRefused().
  template <class Post>
  auto countingRefusals(OpKind kind, const Edges& edges, const Match& match, int64_t tag,
                        const Post& post) {
    try {
      return post();
    } catch (...) {
      if (match.numberOfCall() == 0) {
        countRefused(counterOf(kind, edges, tag));
      }
      throw;
    }
  }

 private:
  struct Call;
  class ExchangeBlocks;
  using Milliseconds = std::chrono::milliseconds;

  c10::intrusive_ptr<ProcessGroupBluefog> part() const;
  // Of tensors of one type, as one operation.
  Call allreduceCall(const Validate& validate, const std::vector<at::Tensor>& tensors,
                     const c10d::ReduceOp& reduction, Milliseconds timeout);
  Call allreduceSparseCall(const Validate& validate, const at::Tensor& tensor,
                           const c10d::ReduceOp& reduction, Milliseconds timeout);
  Call allgatherCall(const Validate& validate, const at::Tensor& input,
                     const std::vector<at::Tensor>& list, Milliseconds timeout);
  Call allgatherBaseCall(const Validate& validate, const at::Tensor& input,
                         const at::Tensor& output, Milliseconds timeout);
  Call reduceScatterBaseCall(const Validate& validate, const at::Tensor& input,
                             const at::Tensor& output, const c10d::ReduceOp& reduction,
                             Milliseconds timeout);
  WorkPtr postExchange(OpKind kind, int root, ExchangeBlocks&& parcels, Call&& call,
                       Milliseconds timeout, bool async_op);

  WorkPtr gatherFromNeighbors(OpKind kind, const at::Tensor& like,
                              const std::vector<at::Tensor>& inputs, const Edges& edges,
                              const GatherOptions& opts);
  WorkPtr averageMachines(const at::Tensor& input, const std::vector<int>& locals,
                          const Edges& between, const MessageOptions& opts);
  enum class Sends { kAll, kNone };
  std::vector<at::Tensor> sumsOf(OpKind kind, const std::vector<at::Tensor>& inputs);
  // Of CPU tensors, still without tasks.
  std::shared_ptr<Op> neighborsOp(const Signature& signature, const Edges& edges, Match& match);
  std::shared_ptr<Op> neighborSumOp(OpKind kind, const std::vector<at::Tensor>& inputs,
                                    const std::vector<at::Tensor>& outputs, const Edges& edges,
                                    Match& match, Sends sends);
  class Kept;
  std::optional<uint64_t> offerTo(const std::vector<WeightedRank>& destinations, ConstSpans& data,
                                  Kept& kept);
  bool sumAtOnce(OpKind kind, const at::Tensor& input, const at::Tensor& output, const Edges& edges,
                 Match& match);
  // What has been posted and has no Work.
  void waitFor(OpKind kind, const std::shared_ptr<Op>& op, const std::vector<at::Tensor>& inputs,
               const std::vector<at::Tensor>& outputs);
  bool mayRunUnseen() const;

  WorkPtr post(Call&& call, bool async_op);
  WorkPtr issueRecorded(Call&& call, bool async_op);
  WorkPtr issue(Call&& call, bool async_op);
  // In that order, under the one Work that `all` describes: collectives end in the order issued,
  // and one that fails fails those after it.
  WorkPtr postAll(const Validate& validate, std::vector<Call>&& calls, Call&& all, bool async_op);
  WorkPtr receive(std::vector<at::Tensor>& tensors, int source, int tag, End end, c10d::OpType type,
                  const char* profiling_title);
  Deadline deadline(std::chrono::milliseconds timeout) const;

  const c10::intrusive_ptr<c10d::Store> store_;  // where parts of the group meet
  const c10::intrusive_ptr<bluefog::Options> options_;
  std::atomic<int64_t> timeout_ms_;
  std::atomic<uint64_t> issued_{0};
  std::atomic<uint64_t> monitored_barriers_{0};
  FlightLog log_;
  std::shared_ptr<SharedHeap> heap_;
  OutputPool outputs_;
  GroupWindows windows_;
  Coalescing coalescing_;
  mutable std::mutex part_mutex_;
  c10::intrusive_ptr<ProcessGroupBluefog> part_;
  const LanguageHooks hooks_;
  Splits splits_;
  std::shared_ptr<Engine> engine_;
};

}  // namespace bluefog
