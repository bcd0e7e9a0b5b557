// Operations between neighbours on an accelerator's tensors.
#include <ATen/record_function.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "process_group/Call.hpp"
#include "process_group/Signatures.hpp"

namespace bluefog {

using Tensors = std::vector<at::Tensor>;

namespace {

// What a rank calls with CPU tensors is something else.
Signature onDevice(Signature signature) {
  signature.where = Where::kDevice;
  return signature;
}

}  // namespace

// Any of them: then all have to be.
bool ProcessGroupBluefog::areAccelerators(const Tensors& tensors) const {
  return accelerator_ != nullptr &&
         std::any_of(tensors.begin(), tensors.end(),
                     [this](const at::Tensor& tensor) { return accelerator_->carries(tensor); });
}

// On another device than the group's the backend would refuse it, and only on this rank.
Validate ProcessGroupBluefog::validateThere(const char* op, const Tensors& tensors) const {
  checkProcess(op);
  const Validate validate(engine_->members(), op, accelerator_->type());
  TORCH_CHECK(!coalescing_.isOn(), validate.who(),
              "an accelerator's backend has one batch at a time, and this is one itself; call it "
              "outside of startCoalescing() and endCoalescing() (which an exception inside of "
              "torch's context manager does not call)");
  const std::optional<at::Device> bound = getBoundDeviceId();
  for (const at::Tensor& tensor : tensors) {
    const bool is_there = accelerator_->carries(tensor);
    TORCH_CHECK_VALUE(!is_there || !bound || tensor.device() == *bound, validate.who(),
                      "a tensor is on ", tensor.device(), ", and the group is bound to ", *bound,
                      " (init_process_group's device_id); move it there with .to()");
  }
  return validate;
}

WorkPtr ProcessGroupBluefog::neighborAllreduceThere(OpKind kind, const Tensors& inputs,
                                                    const Edges& edges,
                                                    const MessageOptions& opts) {
  RECORD_FUNCTION(profilingTitle(kind), std::vector<c10::IValue>());
  const Validate validate = validateThere(name(kind), inputs);
  for (const at::Tensor& input : inputs) {
    validate.summable(input);
  }
  validate.onOneDevice(inputs);
  const Agreement agreement = agree(onDevice(signatureOfAll(kind, inputs)), profilingTitle(kind),
                                    inputs, edges, {}, opts.tag);
  return exchanged(kind, agreement, [&] {
    return accelerator_->neighborAllreduce(inputs, agreement.among(edges), opts.async_op);
  });
}

WorkPtr ProcessGroupBluefog::neighborGatherThere(OpKind kind, const at::Tensor& like,
                                                 const Tensors& inputs, const Edges& edges,
                                                 const GatherOptions& opts) {
  const char* title = opts.is_of_all ? "bluefog:allgather" : profilingTitle(kind);
  RECORD_FUNCTION(title, std::vector<c10::IValue>());
  Tensors all = inputs;
  all.push_back(like);
  const Validate validate = validateThere(opts.is_of_all ? "allgather" : name(kind), all);
  for (const at::Tensor& tensor : all) {
    validate.rows(tensor);
    validate.sameRows(tensor, like);
  }
  validate.onOneDevice(all);
  validate.sameLength(inputs.size(), "the list", edges.destinations.size(), "out-neighbours");
  std::vector<int64_t> rows;
  for (const at::Tensor& input : inputs) {
    rows.push_back(input.size(0));
  }
  const Agreement agreement =
      agree(onDevice(signatureOfRows(kind, like)), title, {like}, edges, rows, opts.tag);
  return exchanged(kind, agreement, [&] {
    const Edges agreed = agreement.among(edges);
    Tensors sent;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (agreement.isWith(edges.destinations[i].rank)) {
        sent.push_back(inputs[i]);
      }
    }
    std::vector<int64_t> received;
    for (const WeightedRank& source : agreed.sources) {
      received.push_back(agreement.rowsFrom(source.rank));
    }
    return accelerator_->neighborGather(like, sent, agreed, received, opts.in_one, opts.async_op);
  });
}

// A part of what a rank hands out comes from every rank of its machine, and so from other machines:
// all of the group have to agree.
WorkPtr ProcessGroupBluefog::hierarchicalNeighborAllreduceThere(const at::Tensor& input,
                                                                const std::vector<int>& locals,
                                                                const Edges& between,
                                                                const MessageOptions& opts) {
  const OpKind kind = OpKind::kHierarchicalNeighborAllReduce;
  RECORD_FUNCTION(profilingTitle(kind), std::vector<c10::IValue>());
  const Signature signature = onDevice(signatureOf(kind, input));
  auto op = std::make_shared<Op>(Op::Kind::kCollective, signature, deadline(c10d::kUnsetTimeout));
  op->scripts.push_back(bluefog::barrier(engine_->board(), *op));
  post({std::move(op), c10d::OpType::UNKNOWN, profilingTitle(kind), {input}, {}}, false);
  const Agreement agreement =
      agree(signature, profilingTitle(kind), {input}, between, {}, opts.tag);
  return exchanged(kind, agreement, [&] {
    return accelerator_->hierarchicalNeighborAllreduce(input, locals, agreement.among(between),
                                                       opts.async_op);
  });
}

}  // namespace bluefog
