#pragma once

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
#include "process_group/Features.hpp"
#include "process_group/FlightLog.hpp"
#include "process_group/GroupHooks.hpp"
#include "process_group/Language.hpp"
#include "process_group/Meeting.hpp"
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

// ProcessGroupBluefog is the c10d backend for tensors on the CPU. A call validates its arguments,
// makes an Op and posts it to the group's Engine; the algorithms are elsewhere. It shares ownership
// of the Engine with the Works of its calls and with its windows, which may outlive it.
// ProcessGroupComposed overrides what an accelerator's tensors need.
// Thread safety: any thread may call any method.
class ProcessGroupBluefog : public c10d::Backend {
 public:
  // Meets the other ranks through the store. Throws Error naming those that do not come within the
  // timeout, or die meanwhile.
  ProcessGroupBluefog(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                      c10::intrusive_ptr<bluefog::Options> options, Language language);
  // Meets the other members of an epoch, and throws like that.
  ProcessGroupBluefog(const Meeting& meeting, c10::intrusive_ptr<bluefog::Options> options,
                      Language language);
  ~ProcessGroupBluefog() override;

  const std::string getBackendName() const override { return "bluefog"; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;

  WorkPtr allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& opts) override;
  // Sums a sparse (COO) tensor in place. allreduce() calls it if its tensor is sparse.
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
  // The calls above have new names since torch 2.14. c10d's methods of these names call the older
  // ones, but refuse to be called again on the same thread meanwhile, as by a signal handler.
  WorkPtr all_gather_single(at::Tensor& output, at::Tensor& input,
                            const c10d::AllgatherOptions& opts) override {
    return _allgather_base(output, input, opts);
  }
  WorkPtr all_gather_single_coalesced(std::vector<at::Tensor>& outputs,
                                      std::vector<at::Tensor>& inputs,
                                      const c10d::AllgatherOptions& opts) override {
    return allgather_into_tensor_coalesced(outputs, inputs, opts);
  }
  WorkPtr reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                const c10d::ReduceScatterOptions& opts) override {
    return _reduce_scatter_base(output, input, opts);
  }
  WorkPtr reduce_scatter_single_coalesced(std::vector<at::Tensor>& outputs,
                                          std::vector<at::Tensor>& inputs,
                                          const c10d::ReduceScatterOptions& opts) override {
    return reduce_scatter_tensor_coalesced(outputs, inputs, opts);
  }
  WorkPtr all_to_all_single(at::Tensor& output, at::Tensor& input,
                            std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                            const c10d::AllToAllOptions& opts) override {
    return alltoall_base(output, input, output_splits, input_splits, opts);
  }
  // Gathers the inputs in the root's output. The outputs of other ranks are left alone.
  WorkPtr gather_single(at::Tensor& output, at::Tensor& input,
                        const c10d::GatherOptions& opts) override;
#endif
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  // Waits for all ranks, and leaves the group usable even if some do not come. Then the ranks that
  // have come throw, and name the first missing rank, or all of them with `wait_all_ranks`.
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;
  WorkPtr send(std::vector<at::Tensor>& tensors, int destination, int tag) override;
  WorkPtr recv(std::vector<at::Tensor>& tensors, int source, int tag) override;
  WorkPtr recvAnysource(std::vector<at::Tensor>& tensors, int tag) override;

  // Calls that the thread makes between these two are issued without waiting, and the Work of
  // endCoalescing() stands for all of them. supportsCoalescing() stays false. Otherwise
  // batch_isend_irecv would return one Work for all operations, and on gloo it returns one for
  // each.
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  // Has `part` end when this group does. It is a group of some of this group's ranks, and c10d does
  // not know of it.
  void setPart(c10::intrusive_ptr<ProcessGroupBluefog> part);

  struct MessageOptions {
    Match& match;
    bool async_op = false;
  };
  // Completes edges for the calls below. The result serves for any number of calls. Throws
  // ValueError if they are no edges that this rank can have in this group.
  std::shared_ptr<Edges> edges(Edges&& edges) const;
  // Averages with neighbors. The Work's result() has a new tensor for each input; all inputs travel
  // as one message. `kind` is kNeighborAllReduce, or kPairGossip, which is the same under another
  // name.
  virtual WorkPtr neighborAllreduce(OpKind kind, const std::vector<at::Tensor>& inputs,
                                    const Edges& edges, const MessageOptions& opts);
  // These two average like neighborAllreduce(), wait, and return the results. A single small tensor
  // takes the fast path if nothing else is under way in the group.
  virtual std::vector<at::Tensor> neighborAllreduceNow(OpKind kind,
                                                       const std::vector<at::Tensor>& inputs,
                                                       const Edges& edges, Match& match);
  virtual at::Tensor neighborAllreduceNow(OpKind kind, const at::Tensor& input, const Edges& edges,
                                          Match& match);
  struct GatherOptions : MessageOptions {
    bool in_one = false;     // one result for all sources
    bool is_of_all = false;  // the program has called it as allgather
  };
  // Sends inputs[i] to destination i. The inputs have the type and the shape of `like`, except for
  // the first dimension. The Work's result() has a tensor for each source, or with `in_one` a
  // single tensor with the rows of all sources one after the other.
  virtual WorkPtr neighborGather(OpKind kind, const at::Tensor& like,
                                 const std::vector<at::Tensor>& inputs, const Edges& edges,
                                 const GatherOptions& opts);
  // Averages the means of machines. `locals` are the ranks of this rank's machine, ascending.
  // `between` has the ranks on other machines that have the same place there as this rank has here.
  virtual WorkPtr hierarchicalNeighborAllreduce(const at::Tensor& input,
                                                const std::vector<int>& locals,
                                                const Edges& between, const MessageOptions& opts);

  bool supportsSplitting() const override { return true; }
  // Returns a group of those ranks of this group, in that order. Only its members take part; the
  // other ranks get null.
  c10::intrusive_ptr<c10d::Backend> split(
      const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
      const c10::intrusive_ptr<c10d::Backend::Options>& opts) override;
  // Returns a group of `size` ranks that meet in that store. They need not belong to this group.
  c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& opts,
                                          const int& rank, const int& size) override;
  // Counts a neighbor call that was refused, as one that exchanges nothing. Otherwise this rank's
  // later calls would meet earlier calls of the other ranks. It does not throw.
  virtual void countRefused(Counter counter);
  // Returns the highest number that a neighbor call of this rank has had, by any counter.
  uint64_t callsMade() { return engine_->callsMade(); }
  // Makes all counters continue from `number`, and waits until messages of earlier calls are
  // dropped.
  void align(uint64_t number);
  // Does nothing, because each Work knows its duration anyway.
  void enableCollectivesTiming() override {}
  // Returns why collectives of this group fail from now on, or SUCCESS if they do not.
  c10d::ErrorType getError() override;
#ifdef BLUEFOG_C10D_HAS_COMPLETION_HOOKS
  bool supportsCompletionHooks() const override { return true; }
  void registerCompletionHook(int64_t id, c10d::CompletionHook hook) override {
    events_->hooks().addCompletion(id, std::move(hook));
  }
  void unregisterCompletionHook(int64_t id) override { events_->hooks().completion.remove(id); }
#endif

  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return issued_.load(); }

  // Calls the abort hooks. Then it fails what is pending on this rank, and thereby on every rank
  // that waits for this one.
  void abort() override;
  // Leaves the group. It does not wait for peers, and what is pending fails.
  void shutdown() override;
  // Has the group share its hooks with others. It must be called before any other thread uses it.
  void setHooks(std::shared_ptr<GroupHooks> hooks) {
    events_ = std::make_shared<GroupEvents>(std::move(hooks));
  }
#ifdef C10D_BACKEND_HAS_HOOKS
  // torch 2.14 has the hooks but not this question, which its successors ask.
  virtual bool supportsAbortHooks() const { return true; }
  void registerAbortHook(int64_t id, c10d::AbortHook hook) override {
    events_->hooks().abort.add(id, std::move(hook));
  }
  void unregisterAbortHook(int64_t id) override { events_->hooks().abort.remove(id); }
#endif

  // Returns what a window over this tensor needs from the group. Throws if the group cannot provide
  // that.
  virtual WindowResources windowResources(const at::Tensor& tensor);
#ifdef C10D_BACKEND_HAS_WINDOW
  bool supportsWindow() const override { return true; }
  // Returns a RawWindow, which is c10d's kind of window.
  c10::intrusive_ptr<c10d::Window> new_window(const std::optional<at::Tensor>& tensor) override;
#endif

  // These return what was counted since the group was made. bytesSent() are payload bytes that were
  // handed to peers. bytesRead() are bytes that were read for messages, and bytesWritten() are
  // bytes of results and copies that were written for them; collectives do not count there.
  uint64_t bytesRead() const { return engine_->mailbox().counters().read(); }
  uint64_t bytesWritten() const { return engine_->mailbox().counters().written(); }
  virtual uint64_t bytesSent() const {
    return engine_->board().bytesSent() + engine_->returns().bytesSent() +
           engine_->mailbox().counters().sent();
  }
  uint64_t operationsIssued() const { return issued_.load(); }
  // Returns the ranks of each host. The hosts are in the order of their first ranks.
  const std::vector<std::vector<int>>& hosts() const { return engine_->hosts().all(); }
  FlightLog& flightLog() { return log_; }
  // Returns how the errors of such an operation begin.
  std::string who(OpKind kind) const { return Validate(engine_->members(), name(kind)).who(); }

 protected:
  // Makes another group of this class for split() and merge(), still without an accelerator.
  virtual c10::intrusive_ptr<ProcessGroupBluefog> sibling(
      const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
      c10::intrusive_ptr<bluefog::Options> options) const;
  // Does what split() says, in a store that no other part uses.
  virtual c10::intrusive_ptr<c10d::Backend> splitIn(
      const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
      const c10::intrusive_ptr<c10d::Backend::Options>& opts);
  const Language& language() const { return language_; }
  const std::shared_ptr<Engine>& engine() const { return engine_; }
  std::string who(const char* op) const { return Validate(engine_->members(), op).who(); }
  Coalescing& coalescing() { return coalescing_; }
  // Ends the calling thread's batch and returns it. Throws if the thread has begun none.
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
  // Throws ValueError if `locals` lacks this rank, or has a rank that is not in the group.
  void checkMachine(const Validate& validate, const std::vector<int>& locals) const;
  static const char* profilingTitle(OpKind kind);
  // Returns what `post` does. If that throws before the call has a number, the call is counted; see
  // countRefused().
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
  // Sets the group's engine, and makes what depends on it.
  void start(std::shared_ptr<Engine> engine);

  struct Call;
  class ExchangeBlocks;
  using Milliseconds = std::chrono::milliseconds;

  c10::intrusive_ptr<ProcessGroupBluefog> part() const;
  // Makes one call of tensors that all have the same type.
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
  WorkPtr postExchange(OpKind kind, int root, ExchangeBlocks&& blocks, Call&& call,
                       Milliseconds timeout, bool async_op);

  WorkPtr gatherFromNeighbors(OpKind kind, const at::Tensor& like,
                              const std::vector<at::Tensor>& inputs, const Edges& edges,
                              const GatherOptions& opts);
  WorkPtr averageMachines(const at::Tensor& input, const std::vector<int>& locals,
                          const Edges& between, const MessageOptions& opts);
  enum class Sends { kAll, kNone };
  std::vector<at::Tensor> sumsOf(OpKind kind, const std::vector<at::Tensor>& inputs);
  // Makes the operation of a neighbor call with CPU tensors, still without tasks.
  std::shared_ptr<MessageOp> neighborsOp(const Signature& signature, const Edges& edges,
                                         Match& match);
  std::shared_ptr<MessageOp> neighborSumOp(OpKind kind, const std::vector<at::Tensor>& inputs,
                                           const std::vector<at::Tensor>& outputs,
                                           const Edges& edges, Match& match, Sends sends);
  class Kept;
  std::optional<uint64_t> offerTo(const std::vector<WeightedRank>& destinations, ConstSpans& data,
                                  Kept& kept);
  bool sumAtOnce(OpKind kind, const at::Tensor& input, const at::Tensor& output, const Edges& edges,
                 Match& match);
  // Waits for an operation that was posted and has no Work. Throws its error.
  void waitFor(OpKind kind, const std::shared_ptr<MessageOp>& op,
               const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs);
  bool mayRunUnseen() const;

  WorkPtr post(Call&& call, bool async_op);
  WorkPtr issueRecorded(Call&& call, bool async_op);
  WorkPtr issue(Call&& call, bool async_op);
  // Posts the calls in that order, and returns one Work for all of them, which `all` describes. The
  // Work is that of the last operation. That suffices, because collectives end in the order issued,
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
  const Language language_;
  std::shared_ptr<GroupEvents> events_ =
      std::make_shared<GroupEvents>(std::make_shared<GroupHooks>());
  Splits splits_;
  std::shared_ptr<Engine> engine_;
};

}  // namespace bluefog
