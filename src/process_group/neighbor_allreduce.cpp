#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "algorithms/NeighborAtOnce.hpp"
#include "process_group/Call.hpp"

namespace bluefog {
namespace {

using Tensors = std::vector<at::Tensor>;

bool areOfOneType(const Tensors& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
    return tensor.scalar_type() == tensors.front().scalar_type();
  });
}

// In that order no element lies across the end of a frame.
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

Signature signatureOfAll(OpKind kind, const Tensors& tensors) {
  Signature signature = signatureOf(kind, tensors.front());
  if (tensors.size() == 1) {
    return signature;
  }
  std::vector<size_t> told;
  signature.count = 0;
  const bool of_one_type = areOfOneType(tensors);
  for (const at::Tensor& tensor : tensors) {
    told.push_back(static_cast<size_t>(tensor.numel()));
    told.push_back(static_cast<size_t>(dtypeOf(tensor)));
    signature.count += of_one_type ? static_cast<size_t>(tensor.numel()) : tensor.nbytes();
  }
  if (!of_one_type) {
    signature.dtype = Dtype::kBytes;
  }
  signature.detail = digest(told);
  return signature;
}

}  // namespace

ProcessGroupBluefog::Call ProcessGroupBluefog::neighborSumCall(OpKind kind, Tensors inputs,
                                                               Tensors outputs, const Edges& edges,
                                                               int64_t tag, Sends sends) {
  Buffers buffers;
  buffers.inputs.reserve(inputs.size());
  buffers.outputs.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    buffers.inputs.push_back(Flat::input(inputs[i]));
    buffers.outputs.push_back(Flat::output(outputs[i]));
  }
  NeighborSum sum{edges.self_weight, edges.sources, edges.divisor, {}};
  ConstSpans data;
  for (const size_t i : widestFirst(inputs)) {
    const size_t bytes = inputs[i].nbytes();
    data.add({buffers.inputs[i].readable(), bytes});
    sum.mixes.add(
        {buffers.inputs[i].readable(), buffers.outputs[i].data(), bytes, dtypeOf(inputs[i])});
  }
  auto op = std::make_shared<Op>(Op::Kind::kMessage, signatureOfAll(kind, inputs),
                                 deadline(c10d::kUnsetTimeout));
  if (sends == Sends::kAll) {
    for (const WeightedRank& destination : edges.destinations) {
      addSend(engine_->mailbox(), *op, {destination.rank, tag, data, destination.weight});
    }
  }
  op->scripts.push_back(neighborSum(engine_->mailbox(), *op, std::move(sum), tag));
  op->partners = edges.partners;
  own(*op, std::make_shared<Buffers>(std::move(buffers)));
  return {std::move(op), c10d::OpType::UNKNOWN, profilingTitle(kind), std::move(inputs),
          std::move(outputs)};
}

WorkPtr ProcessGroupBluefog::neighborAllreduce(OpKind kind, Tensors inputs, const Edges& edges,
                                               const MessageOptions& opts) {
  checkProcess(name(kind));
  const Validate validate(engine_->members(), name(kind));
  TORCH_CHECK_VALUE(!inputs.empty(), validate.who(), "expected at least one tensor, got none");
  for (const at::Tensor& input : inputs) {
    validate.summable(input);
  }
  Tensors outputs =
      inputs.size() == 1 ? Tensors{outputs_.emptyLike(inputs[0])} : outputs_.emptyLikeAll(inputs);
  return post(
      neighborSumCall(kind, std::move(inputs), std::move(outputs), edges, opts.tag, Sends::kAll),
      opts.async_op);
}

at::Tensor ProcessGroupBluefog::neighborAllreduceNow(OpKind kind, const at::Tensor& input,
                                                     const Edges& edges, int64_t tag) {
  checkProcess(name(kind));
  Validate(engine_->members(), name(kind)).summable(input);
  at::Tensor output = outputs_.emptyLike(input);
  if (!Flat::isPlain(input) || at::hasCallbacks() || coalescing_.isOn() ||
      !sumAtOnce(kind, input, output, edges, tag)) {
    post(neighborSumCall(kind, {input}, {output}, edges, tag, Sends::kAll), false)->wait();
  }
  return output;
}

// False where that cannot be.
bool ProcessGroupBluefog::sumAtOnce(OpKind kind, const at::Tensor& input, const at::Tensor& output,
                                    const Edges& edges, int64_t tag) {
  const NeighborAtOnce::Call call{signatureOf(kind, input),
                                  tag,
                                  std::chrono::milliseconds(timeout_ms_.load()),
                                  edges.self_weight,
                                  edges.sources,
                                  edges.destinations,
                                  edges.divisor,
                                  static_cast<const std::byte*>(input.const_data_ptr()),
                                  static_cast<std::byte*>(output.mutable_data_ptr())};
  if (!NeighborAtOnce::isPossible(call)) {
    return false;
  }
  NeighborAtOnce exchange(
      call, [&] { return neighborSumCall(kind, {input}, {output}, edges, tag, Sends::kNone).op; });
  const Op::Time begin = Deadline::Clock::now();
  const Engine::Attempt attempt = engine_->tryAtOnce(exchange);
  if (attempt.sequence == 0) {
    return false;
  }
  ++issued_;
  if (!attempt.rest) {
    log_.addEnded(profilingTitle(kind), attempt.sequence, edges.partners,
                  std::chrono::milliseconds(timeout_ms_.load()), input, output,
                  Deadline::Clock::now() - begin);
    return true;
  }
  log_.add(profilingTitle(kind), attempt.rest, {input}, {output});
  engine_->wait(*attempt.rest, Deadline::never());
  if (attempt.rest->error) {
    std::rethrow_exception(frontend_.raised(attempt.rest->error));
  }
  return true;
}

}  // namespace bluefog
