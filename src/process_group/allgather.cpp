#include <algorithm>
#include <numeric>

#include "process_group/Call.hpp"

namespace bluefog {

ProcessGroupBluefog::Call ProcessGroupBluefog::allgatherCall(const Validate& validate,
                                                             const at::Tensor& input,
                                                             const std::vector<at::Tensor>& list,
                                                             std::chrono::milliseconds timeout) {
  validate.listLength(list.size(), "the output list");
  auto buffers = std::make_shared<Buffers>(Buffers{{Flat::input(input)}, {}});
  std::vector<std::byte*> data;
  std::vector<size_t> bytes;
  for (const at::Tensor& output : list) {
    validate.tensor(output, "an output");
    validate.writable(output, "an output");
    validate.sameType(output, input, "an output");
    buffers->outputs.push_back(Flat::output(output));
    data.push_back(buffers->outputs.back().data());
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

  auto op = std::make_shared<Op>(Op::Kind::kCollective, signature, deadline(timeout));
  op->scripts.push_back(bluefog::allgather(engine_->board(), engine_->returns(), *op,
                                           buffers->inputs[0].readable(), std::move(data),
                                           std::move(bytes)));
  own(*op, std::move(buffers));
  return {std::move(op), c10d::OpType::ALLGATHER, "bluefog:all_gather", {input}, list};
}

ProcessGroupBluefog::Call ProcessGroupBluefog::allgatherBaseCall(
    const Validate& validate, const at::Tensor& input, const at::Tensor& output,
    std::chrono::milliseconds timeout) {
  validate.wholeAndPart(output, "the output", input, "the input");
  validate.contiguous(output, "the output");
  auto buffers = std::make_shared<Buffers>(Buffers{{Flat::input(input)}, {Flat::output(output)}});
  const size_t bytes = input.nbytes();
  std::vector<std::byte*> data;
  for (int rank = 0; rank < size_; ++rank) {
    data.push_back(buffers->outputs[0].data() + static_cast<size_t>(rank) * bytes);
  }

  auto op = std::make_shared<Op>(Op::Kind::kCollective, signatureOf(OpKind::kAllGather, input),
                                 deadline(timeout));
  op->scripts.push_back(bluefog::allgather(engine_->board(), engine_->returns(), *op,
                                           buffers->inputs[0].readable(), std::move(data),
                                           std::vector<size_t>(static_cast<size_t>(size_), bytes)));
  own(*op, std::move(buffers));
  return {std::move(op), c10d::OpType::_ALLGATHER_BASE, "bluefog:all_gather", {input}, {output}};
}

WorkPtr ProcessGroupBluefog::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                       std::vector<at::Tensor>& inputs,
                                       const c10d::AllgatherOptions& opts) {
  checkProcess("allgather");
  const Validate validate(engine_->members(), "allgather");
  const at::Tensor& input = validate.only(inputs, "input");
  TORCH_CHECK_VALUE(outputs.size() == 1, validate.who(), "expected one list of outputs, got ",
                    outputs.size());
  return post(allgatherCall(validate, input, outputs.front(), opts.timeout), opts.asyncOp);
}

WorkPtr ProcessGroupBluefog::_allgather_base(at::Tensor& output, at::Tensor& input,
                                             const c10d::AllgatherOptions& opts) {
  checkProcess("_allgather_base");
  const Validate validate(engine_->members(), "_allgather_base");
  return post(allgatherBaseCall(validate, input, output, opts.timeout), opts.asyncOp);
}

// outputs[r][i] gets inputs[i] of rank r.
WorkPtr ProcessGroupBluefog::allgather_coalesced(std::vector<std::vector<at::Tensor>>& outputs,
                                                 std::vector<at::Tensor>& inputs,
                                                 const c10d::AllgatherOptions& opts) {
  checkProcess("allgather_coalesced");
  const Validate validate(engine_->members(), "allgather_coalesced");
  validate.listLength(outputs.size(), "the list of output lists");
  std::vector<Call> calls;
  std::vector<at::Tensor> all;
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<at::Tensor> list;
    for (const std::vector<at::Tensor>& of_rank : outputs) {
      validate.sameLength(of_rank.size(), "an output list", inputs.size(), "inputs");
      list.push_back(of_rank[i]);
    }
    validate.tensor(inputs[i], "an input");
    calls.push_back(allgatherCall(validate, inputs[i], list, opts.timeout));
    all.insert(all.end(), list.begin(), list.end());
  }
  return postAll(validate, std::move(calls),
                 {nullptr, c10d::OpType::ALLGATHER_COALESCED, "bluefog:all_gather", inputs, all},
                 opts.asyncOp);
}

WorkPtr ProcessGroupBluefog::allgather_into_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                                             std::vector<at::Tensor>& inputs,
                                                             const c10d::AllgatherOptions& opts) {
  checkProcess("allgather_into_tensor_coalesced");
  const Validate validate(engine_->members(), "allgather_into_tensor_coalesced");
  validate.sameLength(outputs.size(), "the output list", inputs.size(), "inputs");
  std::vector<Call> calls;
  for (size_t i = 0; i < inputs.size(); ++i) {
    calls.push_back(allgatherBaseCall(validate, inputs[i], outputs[i], opts.timeout));
  }
  return postAll(validate, std::move(calls),
                 {nullptr, c10d::OpType::COALESCED, "bluefog:all_gather", inputs, outputs},
                 opts.asyncOp);
}

}  // namespace bluefog
