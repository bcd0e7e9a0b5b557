#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "algorithms/NeighborFastPath.hpp"
#include "core/Reduce.hpp"
#include "process_group/host/Borrowed.hpp"
#include "process_group/host/Call.hpp"
#include "process_group/host/Signatures.hpp"
#include "transport/tuning/Tuning.hpp"

namespace bluefog {

using Tensors = std::vector<at::Tensor>;

// A Kept keeps the memory that an operation uses, until the operation lets go of it.
class ProcessGroupBluefog::Kept {
 public:
  // Returns where the elements of `input` lie one after the other, and keeps that memory. It is a
  // copy if the input is not plain.
  const std::byte* elementsOf(const at::Tensor& input) {
    if (Flat::isPlain(input)) {
      keep(input);
      return static_cast<const std::byte*>(input.const_data_ptr());
    }
    const Flat copy = Flat::input(input);
    keep(copy.tensor());
    return copy.readable();
  }
  // Keeps the tensor's storage, but not the tensor: to drop the last reference of a tensor may need
  // the GIL.
  void keep(const at::Tensor& tensor) {
    if (storages_.empty() || !storages_.back().is_alias_of(tensor.storage())) {
      storages_.push_back(tensor.storage());
    }
  }

 private:
  std::vector<c10::Storage> storages_;
};

namespace {

// Returns the order in which the tensors travel: those with wider elements come first. So no
// element lies across the end of a frame.
std::vector<size_t> widestFirst(const Tensors& tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (!areOfOneType(tensors)) {
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return tensors[a].element_size() > tensors[b].element_size();
    });
  }
  return order;
}

}  // namespace

// Returns where in this rank's heap the destinations on this host are to read `data`, or nothing if
// all of it is to be sent over lanes. If the data lies elsewhere and several ranks read it, it is
// copied into the heap once for all of them. The same is done for one reader, if the data is at
// most tuning::kMostCopiedForOne bytes. Less than tuning::kSmallestPooled is never copied. `data`
// becomes the copy, which `kept` keeps.
std::optional<uint64_t> ProcessGroupBluefog::offerTo(const std::vector<WeightedRank>& destinations,
                                                     ConstSpans& data, Kept& kept) {
  const auto readers =
      std::count_if(destinations.begin(), destinations.end(),
                    [this](const WeightedRank& it) { return engine_->hosts().isHere(it.rank); });
  if (!outputs_.isShared() || !engine_->prefersOffers(data.bytes(), readers)) {
    return std::nullopt;
  }
  if (const ConstSpan* whole = data.single()) {
    if (const std::optional<uint64_t> place = outputs_.placeOf(whole->data, whole->bytes)) {
      return place;
    }
  }
  if ((readers < 2 && data.bytes() > tuning::kMostCopiedForOne) ||
      data.bytes() < tuning::kSmallestPooled) {
    return std::nullopt;
  }
  const at::Tensor copy = outputs_.empty({static_cast<int64_t>(data.bytes())}, at::kByte);
  auto* to = static_cast<std::byte*>(copy.mutable_data_ptr());
  const Stores stores = engine_->mailbox().reads().storesFor(data.bytes());
  data.forEach(0, data.bytes(), [&](const ConstSpan& span, size_t at) {
    copyBytes(to + at, span.data, span.bytes, stores);
  });
  kept.keep(copy);
  data = ConstSpans(ConstSpan{to, data.bytes()});
  return outputs_.placeOf(to, data.bytes());
}

std::shared_ptr<MessageOp> ProcessGroupBluefog::neighborsOp(const Signature& signature,
                                                            const Edges& edges, Match& match) {
  auto op = std::make_shared<MessageOp>(signature, deadline(c10d::kUnsetTimeout));
  op->number = match.number;
  if (match.number == 0) {
    op->counter = counterOf(signature.kind, edges, match.tag);
  }
  match.op = op;
  return op;
}

std::shared_ptr<MessageOp> ProcessGroupBluefog::neighborSumOp(OpKind kind, const Tensors& inputs,
                                                              const Tensors& outputs,
                                                              const Edges& edges, Match& match,
                                                              Sends sends) {
  const auto kept = std::make_shared<Kept>();
  NeighborSum sum{edges.self_weight, edges.sources, edges.divisor, {}};
  ConstSpans data;
  for (const size_t i : widestFirst(inputs)) {
    const size_t bytes = inputs[i].nbytes();
    const std::byte* input = kept->elementsOf(inputs[i]);
    data.add({input, bytes});
    auto* output = static_cast<std::byte*>(outputs[i].mutable_data_ptr());
    sum.pieces.add({input, output, bytes, dtypeOf(inputs[i])});
  }
  for (const at::Tensor& output : outputs) {
    kept->keep(output);
  }
  auto op = neighborsOp(signatureOfAll(kind, inputs), edges, match);
  if (sends == Sends::kAll) {
    const std::optional<uint64_t> offer = offerTo(edges.destinations, data, *kept);
    for (const WeightedRank& destination : edges.destinations) {
      Outgoing message{destination.rank, match.tag, data, destination.weight};
      message.offer = offer;
      addSend(engine_->mailbox(), *op, std::move(message));
    }
  }
  op->tasks.push_back(neighborSum(engine_->mailbox(), *op, std::move(sum), match.tag));
  op->partners = edges.partners;
  op->memory = kept;
  return op;
}

// Returns whether a call that is waited for needs no Work, because no profiler looks and the
// calling thread has no batch.
bool ProcessGroupBluefog::mayRunUnseen() const {
  return !at::hasCallbacks() && !coalescing_.isOn();
}

// Checks the inputs of a neighbor sum, and returns uninitialized tensors for its results.
Tensors ProcessGroupBluefog::sumsOf(OpKind kind, const Tensors& inputs) {
  checkProcess(name(kind));
  const Validate validate(engine_->members(), name(kind));
  TORCH_CHECK_VALUE(!inputs.empty(), validate.who(), "expected at least one tensor, got none");
  for (const at::Tensor& input : inputs) {
    validate.summable(input);
  }
  return inputs.size() == 1 ? Tensors{outputs_.emptyLike(inputs[0])}
                            : outputs_.emptyLikeAll(inputs);
}

WorkPtr ProcessGroupBluefog::neighborAllreduce(OpKind kind, const Tensors& inputs,
                                               const Edges& edges, const MessageOptions& opts) {
  return countingRefusals(kind, edges, opts.match, opts.match.tag, [&] {
    Tensors outputs = sumsOf(kind, inputs);
    const auto op = neighborSumOp(kind, inputs, outputs, edges, opts.match, Sends::kAll);
    return post({op, c10d::OpType::UNKNOWN, profilingTitle(kind), inputs, std::move(outputs)},
                opts.async_op);
  });
}

Tensors ProcessGroupBluefog::neighborAllreduceNow(OpKind kind, const Tensors& inputs,
                                                  const Edges& edges, Match& match) {
  if (!mayRunUnseen()) {
    const WorkPtr work = neighborAllreduce(kind, inputs, edges, {match, false});
    work->wait();  // neighborAllreduce() does not wait while the thread has a batch
    return work->result();
  }
  return countingRefusals(kind, edges, match, match.tag, [&] {
    Tensors outputs = sumsOf(kind, inputs);
    const auto op = neighborSumOp(kind, inputs, outputs, edges, match, Sends::kAll);
    engine_->post(op, Engine::Who::kCaller);
    waitFor(kind, op, inputs, outputs);
    return outputs;
  });
}

at::Tensor ProcessGroupBluefog::neighborAllreduceNow(OpKind kind, const at::Tensor& input,
                                                     const Edges& edges, Match& match) {
  if (match.number == 0 && mayRunUnseen() && Flat::isPlain(input)) {
    const at::Tensor output = countingRefusals(kind, edges, match, match.tag, [&] {
      checkProcess(name(kind));
      Validate(engine_->members(), name(kind)).summable(input);
      const at::Tensor sum = outputs_.emptyLike(input);
      return sumAtOnce(kind, input, sum, edges, match) ? sum : at::Tensor();
    });
    if (output.defined()) {
      return output;
    }
  }
  return neighborAllreduceNow(kind, Borrowed(input).all(), edges, match).front();
}

// Sums a small tensor over the fast path. Returns false if it has done nothing, because the tensor
// is too large or something is in the way.
bool ProcessGroupBluefog::sumAtOnce(OpKind kind, const at::Tensor& input, const at::Tensor& output,
                                    const Edges& edges, Match& match) {
  const auto begin = Deadline::Clock::now();
  const NeighborFastPath::SmallExchange call{signatureOf(kind, input),
                                             counterOf(kind, edges, match.tag),
                                             edges.self_weight,
                                             edges.sources,
                                             edges.destinations,
                                             edges.divisor,
                                             static_cast<const std::byte*>(input.const_data_ptr()),
                                             static_cast<std::byte*>(output.mutable_data_ptr())};
  if (!NeighborFastPath::isPossible(call)) {
    return false;
  }
  const Borrowed inputs(input);
  const Tensors outputs{output};
  const auto make_op = [&] {
    return neighborSumOp(kind, inputs.all(), outputs, edges, match, Sends::kNone);
  };
  NeighborFastPath exchange(call, std::ref(make_op));
  const Engine::Attempt attempt = engine_->tryFastPath(exchange);
  if (attempt.sequence == 0) {
    return false;
  }
  match.number = attempt.number;
  if (!attempt.op) {
    ++issued_;
    log_.addEnded(profilingTitle(kind), attempt.sequence, edges.partners, groupsTimeout(), input,
                  output, begin);
    return true;
  }
  waitFor(kind, attempt.op, inputs.all(), outputs);
  return true;
}

void ProcessGroupBluefog::countRefused(Counter counter) {
  if (engine_->isForked()) {
    return;  // the group belongs to the parent process
  }
  const auto op = std::make_shared<MessageOp>(Signature{.kind = counter.kind}, Deadline::never(),
                                              OpRole::kService);
  op->counter = counter;
  try {
    engine_->post(op, Engine::Who::kEngine);
  } catch (const std::exception&) {
    // The group has ended, so there are no later calls.
  }
}

void ProcessGroupBluefog::align(uint64_t number) {
  checkProcess("align");
  const auto op = engine_->align(number);
  engine_->wait(*op, Deadline::never());
}

void ProcessGroupBluefog::waitFor(OpKind kind, const std::shared_ptr<MessageOp>& op,
                                  const Tensors& inputs, const Tensors& outputs) {
  ++issued_;
  log_.add(profilingTitle(kind), op, inputs, outputs);
  engine_->wait(*op, Deadline::never());
  if (op->error) {
    std::rethrow_exception(language_.raised(op->error));
  }
}

}  // namespace bluefog
