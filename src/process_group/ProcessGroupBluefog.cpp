#include "process_group/ProcessGroupBluefog.hpp"

#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <numeric>

#include "bootstrap/Rendezvous.hpp"
#include "bootstrap/StoreExchange.hpp"
#include "process_group/Flat.hpp"
#include "process_group/WorkBluefog.hpp"

namespace bluefog {
namespace {

using c10d::OpType;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// A part of a frame is never smaller than a cache line.
constexpr int kMostRanks = 512;

// The groups of this process, for shutdownAll(): the one piece of state that is the process's.
struct Registry {
  std::mutex mutex;
  std::vector<std::weak_ptr<Engine>> engines;
};

Registry& registry() {
  // Never destroyed: static destructors run while threads still do.
  static Registry* const instance = std::make_unique<Registry>().release();
  return *instance;
}

void enroll(const std::shared_ptr<Engine>& engine) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.engines, [](const auto& weak) { return weak.expired(); });
  all.engines.push_back(engine);
}

Membership membership(int rank, int size, const Options& options) {
  Membership members;
  members.rank = rank;
  members.size = size;
  members.global_ranks.assign(options.global_ranks_in_group.begin(),
                              options.global_ranks_in_group.end());
  if (members.global_ranks.size() != static_cast<size_t>(size)) {
    members.global_ranks.resize(static_cast<size_t>(size));
    std::iota(members.global_ranks.begin(), members.global_ranks.end(), 0);
  }
  // torch calls the default group "0" or "default_pg".
  if (options.group_name != "0" && options.group_name != "default_pg") {
    members.group = options.group_name;
  }
  return members;
}

std::shared_ptr<Engine> join(const c10::intrusive_ptr<c10d::Store>& store, Membership members,
                             Deadline deadline, std::function<void()> interrupt) {
  StoreExchange exchange(store, members.rank, members.size);
  Rendezvous rendezvous(exchange, members.rank, members.global_ranks, deadline, interrupt);
  rendezvous.meet();
  const Fd memory = rendezvous.share(members.rank == 0 ? Segment::create(members.size) : Fd());
  const int size = members.size;
  return std::make_shared<Engine>(Segment(memory, size), std::move(members), rendezvous.takeLinks(),
                                  std::move(interrupt));
}

double premultiplier(const c10d::ReduceOp& op) {
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM) {
    return 1.0;
  }
  const auto* factor = dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK_VALUE(factor != nullptr,
                    "[bluefog] PREMUL_SUM has no factor; make it with "
                    "torch.distributed._make_nccl_premul_sum");
  return factor->tensor_factor.defined() ? factor->tensor_factor.item<double>()
                                         : factor->double_factor;
}

// FNV-1a: ranks that pass different sizes must notice.
uint64_t digest(const std::vector<size_t>& sizes) {
  uint64_t hash = 14695981039346656037ull;
  for (size_t size : sizes) {
    hash = (hash ^ size) * 1099511628211ull;
  }
  return hash;
}

}  // namespace

// What post() needs: the operation, and what its Work says of it.
struct ProcessGroupBluefog::Call {
  std::shared_ptr<Op> op;
  OpType type;
  const char* profiling_title;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;
  bool async_op;
  std::shared_ptr<int> source = nullptr;
};

ProcessGroupBluefog::ProcessGroupBluefog(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                         int size, c10::intrusive_ptr<bluefog::Options> options,
                                         std::function<void()> interrupt)
    : c10d::Backend(rank, size),
      options_(std::move(options)),
      timeout_ms_(options_->timeout.count()),
      owner_(::getpid()) {
  TORCH_CHECK_VALUE(size >= 1 && size <= kMostRanks, "[bluefog] init_process_group: ", size,
                    " ranks; a group has 1 to ", kMostRanks);
  TORCH_CHECK_VALUE(rank >= 0 && rank < size, "[bluefog] init_process_group: rank ", rank,
                    " is not in a group of ", size);
  engine_ = join(store, membership(rank, size, *options_), deadline(c10d::kUnsetTimeout),
                 std::move(interrupt));
  enroll(engine_);
  init();
}

ProcessGroupBluefog::~ProcessGroupBluefog() {
  shutdown();
}

void ProcessGroupBluefog::setTimeout(std::chrono::milliseconds timeout) {
  TORCH_CHECK_VALUE(timeout.count() > 0, "[bluefog] set_timeout: ", timeout.count(),
                    " ms is not a positive time");
  options_->timeout = timeout;
  timeout_ms_ = timeout.count();
}

Deadline ProcessGroupBluefog::deadline(std::chrono::milliseconds timeout) const {
  return Deadline::in(timeout.count() > 0 ? timeout
                                          : std::chrono::milliseconds(timeout_ms_.load()));
}

void ProcessGroupBluefog::checkProcess(const char* op) const {
  TORCH_CHECK(::getpid() == owner_, "[bluefog] ", op,
              ": this process was forked after the process group was made; make a new group in it");
}

WorkPtr ProcessGroupBluefog::post(Call&& call) {
  ++issued_;
  auto work = c10::make_intrusive<WorkBluefog>(engine_, call.op, call.type, call.profiling_title,
                                               call.inputs, std::move(call.outputs), call.source);
  if (call.async_op) {
    call.op->finished = [work](Op&) { work->conclude(); };
    engine_->post(call.op, Engine::Who::kEngine);
    return work;
  }
  engine_->post(call.op, Engine::Who::kCaller);
  engine_->wait(*call.op, Deadline::never());
  work->conclude();
  if (call.op->error) {
    std::rethrow_exception(call.op->error);
  }
  return work;
}

WorkPtr ProcessGroupBluefog::allreduce(std::vector<at::Tensor>& tensors,
                                       const c10d::AllreduceOptions& opts) {
  checkProcess("allreduce");
  const Validate validate(engine_->members(), "allreduce");
  const at::Tensor& tensor = validate.only(tensors, "input");
  Signature signature = signatureOf(OpKind::kAllReduce, tensor);
  signature.reduce = validate.reduction(opts.reduceOp, tensor);

  auto op = std::make_shared<Op>(Op::Kind::kCollective, signature, deadline(opts.timeout));
  auto flat = std::make_shared<Flat>(Flat::input(tensor));
  op->factor = premultiplier(opts.reduceOp);
  op->scripts.push_back(
      bluefog::allreduce(engine_->board(), engine_->returns(), *op, flat->data()));
  if (flat->copied()) {
    op->epilogue = [flat] { flat->copyBack(); };
  }
  op->memory = std::move(flat);
  return post(
      {std::move(op), OpType::ALLREDUCE, "bluefog:all_reduce", tensors, tensors, opts.asyncOp});
}

WorkPtr ProcessGroupBluefog::broadcast(std::vector<at::Tensor>& tensors,
                                       const c10d::BroadcastOptions& opts) {
  checkProcess("broadcast");
  const Validate validate(engine_->members(), "broadcast");
  const at::Tensor& tensor = validate.only(tensors, "input");
  validate.rank(opts.rootRank, "root");
  Signature signature = signatureOf(OpKind::kBroadcast, tensor);
  signature.root = static_cast<int32_t>(opts.rootRank);

  auto op = std::make_shared<Op>(Op::Kind::kCollective, signature, deadline(opts.timeout));
  auto flat = std::make_shared<Flat>(Flat::input(tensor));
  op->scripts.push_back(bluefog::broadcast(engine_->board(), *op, flat->data()));
  if (flat->copied()) {
    op->epilogue = [flat] { flat->copyBack(); };
  }
  op->memory = std::move(flat);
  return post(
      {std::move(op), OpType::BROADCAST, "bluefog:broadcast", tensors, tensors, opts.asyncOp});
}

WorkPtr ProcessGroupBluefog::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                       std::vector<at::Tensor>& inputs,
                                       const c10d::AllgatherOptions& opts) {
  checkProcess("allgather");
  const Validate validate(engine_->members(), "allgather");
  const at::Tensor& input = validate.only(inputs, "input");
  TORCH_CHECK_VALUE(outputs.size() == 1, validate.who(), "expected one list of outputs, got ",
                    outputs.size());
  const std::vector<at::Tensor>& list = outputs.front();
  validate.listLength(list.size(), "the output list");
  struct Memory {
    Flat input;
    std::vector<Flat> outputs;
  };
  auto memory = std::make_shared<Memory>(Memory{Flat::input(input), {}});
  std::vector<std::byte*> data;
  std::vector<size_t> bytes;
  for (const at::Tensor& output : list) {
    validate.tensor(output, "an output");
    validate.sameType(output, input, "an output");
    memory->outputs.push_back(Flat::output(output));
    data.push_back(memory->outputs.back().data());
    bytes.push_back(output.nbytes());
  }
  validate.elements(list[static_cast<size_t>(rank_)].numel(), input.numel(),
                    "the output for this rank's own input");
  Signature signature = signatureOf(OpKind::kAllGather, input);
  if (std::any_of(bytes.begin(), bytes.end(), [&](size_t size) { return size != bytes[0]; })) {
    // Every rank gives another size: what they must agree on is all of them.
    signature.count = std::accumulate(bytes.begin(), bytes.end(), size_t{0}) / input.itemsize();
    signature.detail = digest(bytes);
  }

  auto op = std::make_shared<Op>(Op::Kind::kCollective, signature, deadline(opts.timeout));
  op->scripts.push_back(bluefog::allgather(engine_->board(), *op, memory->input.readable(),
                                           std::move(data), std::move(bytes)));
  if (std::any_of(memory->outputs.begin(), memory->outputs.end(),
                  [](const Flat& flat) { return flat.copied(); })) {
    op->epilogue = [memory] {
      for (const Flat& flat : memory->outputs) {
        flat.copyBack();
      }
    };
  }
  op->memory = std::move(memory);
  return post({std::move(op), OpType::ALLGATHER, "bluefog:all_gather", inputs, list, opts.asyncOp});
}

WorkPtr ProcessGroupBluefog::_allgather_base(at::Tensor& output, at::Tensor& input,
                                             const c10d::AllgatherOptions& opts) {
  checkProcess("_allgather_base");
  const Validate validate(engine_->members(), "_allgather_base");
  validate.tensor(input, "the input");
  validate.tensor(output, "the output");
  validate.sameType(output, input, "the output");
  validate.elements(output.numel(), input.numel() * size_, "the output");
  TORCH_CHECK_VALUE(output.is_contiguous(), validate.who(), "the output must be contiguous");
  auto memory = std::make_shared<std::pair<Flat, at::Tensor>>(Flat::input(input), output);
  const size_t bytes = input.nbytes();
  std::vector<std::byte*> data;
  for (int rank = 0; rank < size_; ++rank) {
    data.push_back(static_cast<std::byte*>(output.mutable_data_ptr()) +
                   static_cast<size_t>(rank) * bytes);
  }

  auto op = std::make_shared<Op>(Op::Kind::kCollective, signatureOf(OpKind::kAllGather, input),
                                 deadline(opts.timeout));
  op->scripts.push_back(bluefog::allgather(engine_->board(), *op, memory->first.readable(),
                                           std::move(data),
                                           std::vector<size_t>(static_cast<size_t>(size_), bytes)));
  op->memory = std::move(memory);
  return post({std::move(op),
               OpType::_ALLGATHER_BASE,
               "bluefog:all_gather",
               {input},
               {output},
               opts.asyncOp});
}

WorkPtr ProcessGroupBluefog::reduce_scatter(std::vector<at::Tensor>& outputs,
                                            std::vector<std::vector<at::Tensor>>& inputs,
                                            const c10d::ReduceScatterOptions& opts) {
  checkProcess("reduce_scatter");
  const Validate validate(engine_->members(), "reduce_scatter");
  const at::Tensor& output = validate.only(outputs, "output");
  TORCH_CHECK_VALUE(inputs.size() == 1, validate.who(), "expected one list of inputs, got ",
                    inputs.size());
  const std::vector<at::Tensor>& list = inputs.front();
  validate.listLength(list.size(), "the input list");
  Signature signature = signatureOf(OpKind::kReduceScatter, output);
  signature.reduce = validate.reduction(opts.reduceOp, output);
  struct Memory {
    std::vector<Flat> inputs;
    Flat output;
  };
  auto memory = std::make_shared<Memory>(Memory{{}, Flat::output(output)});
  std::vector<const std::byte*> data;
  std::vector<size_t> counts;
  for (const at::Tensor& input : list) {
    validate.tensor(input, "an input");
    validate.sameType(input, output, "an input");
    counts.push_back(static_cast<size_t>(input.numel()));
  }
  validate.elements(output.numel(), list[static_cast<size_t>(rank_)].numel(), "the output");
  for (const at::Tensor& input : list) {
    memory->inputs.push_back(Flat::input(input));
    data.push_back(memory->inputs.back().readable());
  }
  signature.count = std::accumulate(counts.begin(), counts.end(), size_t{0});
  signature.detail = digest(counts);

  auto op = std::make_shared<Op>(Op::Kind::kCollective, signature, deadline(opts.timeout));
  op->factor = premultiplier(opts.reduceOp);
  op->scripts.push_back(bluefog::reduceScatter(engine_->board(), *op, std::move(data),
                                               std::move(counts), memory->output.data()));
  if (memory->output.copied()) {
    op->epilogue = [memory] { memory->output.copyBack(); };
  }
  op->memory = std::move(memory);
  return post({std::move(op), OpType::REDUCE_SCATTER, "bluefog:reduce_scatter", list, outputs,
               opts.asyncOp});
}

WorkPtr ProcessGroupBluefog::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                  const c10d::ReduceScatterOptions& opts) {
  checkProcess("_reduce_scatter_base");
  const Validate validate(engine_->members(), "_reduce_scatter_base");
  validate.tensor(input, "the input");
  validate.tensor(output, "the output");
  validate.sameType(output, input, "the output");
  validate.elements(input.numel(), output.numel() * size_, "the input");
  TORCH_CHECK_VALUE(output.is_contiguous(), validate.who(), "the output must be contiguous");
  Signature signature = signatureOf(OpKind::kReduceScatter, input);
  signature.reduce = validate.reduction(opts.reduceOp, output);
  auto memory = std::make_shared<std::pair<Flat, at::Tensor>>(Flat::input(input), output);
  const auto count = static_cast<size_t>(output.numel());
  std::vector<const std::byte*> data;
  for (int rank = 0; rank < size_; ++rank) {
    data.push_back(memory->first.readable() + static_cast<size_t>(rank) * output.nbytes());
  }
  std::vector<size_t> counts(static_cast<size_t>(size_), count);
  signature.detail = digest(counts);

  auto op = std::make_shared<Op>(Op::Kind::kCollective, signature, deadline(opts.timeout));
  op->factor = premultiplier(opts.reduceOp);
  op->scripts.push_back(bluefog::reduceScatter(engine_->board(), *op, std::move(data),
                                               std::move(counts),
                                               static_cast<std::byte*>(output.mutable_data_ptr())));
  op->memory = std::move(memory);
  return post({std::move(op),
               OpType::_REDUCE_SCATTER_BASE,
               "bluefog:reduce_scatter",
               {input},
               {output},
               opts.asyncOp});
}

WorkPtr ProcessGroupBluefog::barrier(const c10d::BarrierOptions& opts) {
  checkProcess("barrier");
  Signature signature;
  signature.kind = OpKind::kBarrier;
  auto op = std::make_shared<Op>(Op::Kind::kCollective, signature, deadline(opts.timeout));
  op->scripts.push_back(bluefog::barrier(engine_->board(), *op));
  return post({std::move(op), OpType::BARRIER, "bluefog:barrier", {}, {}, opts.asyncOp});
}

WorkPtr ProcessGroupBluefog::send(std::vector<at::Tensor>& tensors, int destination, int tag) {
  checkProcess("send");
  const Validate validate(engine_->members(), "send");
  const at::Tensor& tensor = validate.only(tensors, "input");
  validate.rank(destination, "destination");
  validate.tag(tag);
  auto op = std::make_shared<Op>(Op::Kind::kMessage, signatureOf(OpKind::kPointToPoint, tensor),
                                 deadline(c10d::kUnsetTimeout));
  op->title = "send";
  auto flat = std::make_shared<Flat>(Flat::input(tensor));
  op->scripts.push_back(
      bluefog::send(engine_->mailbox(), *op, destination, tag, flat->readable(), 1.0));
  op->memory = std::move(flat);
  return post({std::move(op), OpType::SEND, "bluefog:send", tensors, tensors, true});
}

WorkPtr ProcessGroupBluefog::recv(std::vector<at::Tensor>& tensors, int source, int tag) {
  checkProcess("recv");
  Validate(engine_->members(), "recv").rank(source, "source");
  return receive(tensors, source, tag, "recv", OpType::RECV, "bluefog:recv");
}

WorkPtr ProcessGroupBluefog::recvAnysource(std::vector<at::Tensor>& tensors, int tag) {
  checkProcess("recv");
  return receive(tensors, kAnySource, tag, "recv from any source", OpType::RECVANYSOURCE,
                 "bluefog:recvAnySource");
}

WorkPtr ProcessGroupBluefog::receive(std::vector<at::Tensor>& tensors, int source, int tag,
                                     const char* title, OpType type, const char* profiling_title) {
  const Validate validate(engine_->members(), title);
  const at::Tensor& tensor = validate.only(tensors, "output");
  validate.tag(tag);
  auto op = std::make_shared<Op>(Op::Kind::kMessage, signatureOf(OpKind::kPointToPoint, tensor),
                                 deadline(c10d::kUnsetTimeout));
  op->title = title;
  auto flat = std::make_shared<Flat>(Flat::output(tensor));
  auto sender = std::make_shared<int>(source);
  op->scripts.push_back(
      bluefog::receive(engine_->mailbox(), *op, source, tag, flat->data(), sender));
  if (flat->copied()) {
    op->epilogue = [flat] { flat->copyBack(); };
  }
  op->memory = std::move(flat);
  return post({std::move(op), type, profiling_title, tensors, tensors, true, std::move(sender)});
}

WorkPtr ProcessGroupBluefog::neighborAllreduce(const at::Tensor& input,
                                               const NeighborOptions& opts) {
  checkProcess("neighbor_allreduce");
  const Validate validate(engine_->members(), "neighbor_allreduce");
  validate.tensor(input, "the input");
  TORCH_CHECK_TYPE(isFloating(dtypeOf(input)), validate.who(), "elements of type ", typeName(input),
                   " cannot be averaged; use a floating type");
  for (const WeightedRank& source : opts.sources) {
    validate.rank(source.rank, "source");
  }
  for (const WeightedRank& destination : opts.destinations) {
    validate.rank(destination.rank, "destination");
  }
  struct Memory {
    Flat input;
    at::Tensor output;
  };
  auto memory = std::make_shared<Memory>(Memory{Flat::input(input), outputs_.emptyLike(input)});
  auto op = std::make_shared<Op>(Op::Kind::kMessage, signatureOf(OpKind::kNeighborAllReduce, input),
                                 deadline(c10d::kUnsetTimeout));
  for (const WeightedRank& destination : opts.destinations) {
    op->scripts.push_back(bluefog::send(engine_->mailbox(), *op, destination.rank, 0,
                                        memory->input.readable(), destination.weight));
  }
  op->scripts.push_back(neighborSum(engine_->mailbox(), *op, memory->input.readable(),
                                    opts.self_weight, opts.sources, opts.divisor,
                                    static_cast<std::byte*>(memory->output.mutable_data_ptr())));
  std::vector<at::Tensor> outputs{memory->output};
  op->memory = std::move(memory);
  return post({std::move(op),
               OpType::UNKNOWN,
               "bluefog:neighbor_allreduce",
               {input},
               std::move(outputs),
               opts.async_op});
}

void ProcessGroupBluefog::abort() {
  if (::getpid() == owner_) {
    engine_->stop(aborted("abort() was called on this rank"));
    engine_->shutdown();
  }
}

void ProcessGroupBluefog::shutdown() {
  if (engine_ && ::getpid() == owner_) {
    engine_->shutdown();
  }
}

void ProcessGroupBluefog::shutdownAll() {
  std::vector<std::shared_ptr<Engine>> engines;
  {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    for (const std::weak_ptr<Engine>& weak : all.engines) {
      if (auto engine = weak.lock()) {
        engines.push_back(std::move(engine));
      }
    }
  }
  for (const auto& engine : engines) {
    engine->shutdown();
  }
}

void ProcessGroupBluefog::notImplemented(const char* call) const {
  TORCH_CHECK_NOT_IMPLEMENTED(false, Validate(engine_->members(), call).who(),
                              "not implemented yet for backend bluefog");
  std::abort();  // not reached: the check throws
}

WorkPtr ProcessGroupBluefog::allreduce_sparse(std::vector<at::Tensor>&,
                                              const c10d::AllreduceOptions&) {
  notImplemented("allreduce_sparse");
}
WorkPtr ProcessGroupBluefog::allreduce_coalesced(std::vector<at::Tensor>&,
                                                 const c10d::AllreduceCoalescedOptions&) {
  notImplemented("allreduce_coalesced");
}
WorkPtr ProcessGroupBluefog::reduce(std::vector<at::Tensor>&, const c10d::ReduceOptions&) {
  notImplemented("reduce");
}
WorkPtr ProcessGroupBluefog::allgather_coalesced(std::vector<std::vector<at::Tensor>>&,
                                                 std::vector<at::Tensor>&,
                                                 const c10d::AllgatherOptions&) {
  notImplemented("allgather_coalesced");
}
WorkPtr ProcessGroupBluefog::allgather_into_tensor_coalesced(std::vector<at::Tensor>&,
                                                             std::vector<at::Tensor>&,
                                                             const c10d::AllgatherOptions&) {
  notImplemented("allgather_into_tensor_coalesced");
}
WorkPtr ProcessGroupBluefog::gather(std::vector<std::vector<at::Tensor>>&, std::vector<at::Tensor>&,
                                    const c10d::GatherOptions&) {
  notImplemented("gather");
}
WorkPtr ProcessGroupBluefog::scatter(std::vector<at::Tensor>&,
                                     std::vector<std::vector<at::Tensor>>&,
                                     const c10d::ScatterOptions&) {
  notImplemented("scatter");
}
WorkPtr ProcessGroupBluefog::reduce_scatter_tensor_coalesced(std::vector<at::Tensor>&,
                                                             std::vector<at::Tensor>&,
                                                             const c10d::ReduceScatterOptions&) {
  notImplemented("reduce_scatter_tensor_coalesced");
}
WorkPtr ProcessGroupBluefog::alltoall_base(at::Tensor&, at::Tensor&, std::vector<int64_t>&,
                                           std::vector<int64_t>&, const c10d::AllToAllOptions&) {
  notImplemented("alltoall_base");
}
WorkPtr ProcessGroupBluefog::alltoall(std::vector<at::Tensor>&, std::vector<at::Tensor>&,
                                      const c10d::AllToAllOptions&) {
  notImplemented("alltoall");
}
void ProcessGroupBluefog::monitoredBarrier(const c10d::BarrierOptions&, bool) {
  notImplemented("monitored_barrier");
}

}  // namespace bluefog
