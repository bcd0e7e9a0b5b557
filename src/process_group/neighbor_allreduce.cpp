#include <algorithm>
#include <numeric>
#include <utility>

#include "process_group/Call.hpp"

namespace bluefog {
namespace {

using Tensors = std::vector<at::Tensor>;

// In that order no element lies across the end of a frame.
std::vector<size_t> widestFirst(const Tensors& tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return tensors[a].element_size() > tensors[b].element_size();
  });
  return order;
}

bool areOfOneType(const Tensors& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
    return tensor.scalar_type() == tensors.front().scalar_type();
  });
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

WorkPtr ProcessGroupBluefog::neighborAllreduce(OpKind kind, const Tensors& inputs,
                                               const Edges& edges, const MessageOptions& opts) {
  checkProcess(name(kind));
  const Validate validate(engine_->members(), name(kind));
  TORCH_CHECK_VALUE(!inputs.empty(), validate.who(), "expected at least one tensor, got none");
  Tensors outputs;
  outputs.reserve(inputs.size());
  Buffers buffers;
  for (const at::Tensor& input : inputs) {
    validate.summable(input);
    outputs.push_back(outputs_.emptyLike(input));
    buffers.inputs.push_back(Flat::input(input));
    buffers.outputs.push_back(Flat::output(outputs.back()));
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
  for (const WeightedRank& destination : edges.destinations) {
    addSend(engine_->mailbox(), *op, {destination.rank, opts.tag, data, destination.weight});
  }
  op->scripts.push_back(neighborSum(engine_->mailbox(), *op, std::move(sum), opts.tag));
  op->partners = partnersOf(edges);
  own(*op, std::make_shared<Buffers>(std::move(buffers)));
  return post(
      {std::move(op), c10d::OpType::UNKNOWN, profilingTitle(kind), inputs, std::move(outputs)},
      opts.async_op);
}

}  // namespace bluefog
