#include "process_group/host/ExchangeBlocks.hpp"

namespace bluefog {

WorkPtr ProcessGroupBluefog::alltoall(std::vector<at::Tensor>& outputs,
                                      std::vector<at::Tensor>& inputs,
                                      const c10d::AllToAllOptions& opts) {
  checkProcess("alltoall");
  const Validate validate(engine_->members(), "alltoall");
  validate.listLength(outputs.size(), "the output list");
  validate.listLength(inputs.size(), "the input list");
  ExchangeBlocks blocks(size_);
  for (int rank = 0; rank < size_; ++rank) {
    const at::Tensor& input = inputs[static_cast<size_t>(rank)];
    const at::Tensor& output = outputs[static_cast<size_t>(rank)];
    validate.tensor(input, "an input");
    validate.tensor(output, "an output");
    validate.writable(output, "an output");
    validate.sameType(input, inputs.front(), "an input");
    validate.sameType(output, inputs.front(), "an output");
    blocks.send(rank, input);
    blocks.receive(rank, output);
  }
  const auto self = static_cast<size_t>(rank_);
  validate.elements(outputs[self].numel(), inputs[self].numel(),
                    "the output for this rank's own input");
  return postExchange(OpKind::kAllToAll, -1, std::move(blocks),
                      {nullptr, c10d::OpType::ALLTOALL, "bluefog:all_to_all", inputs, outputs},
                      opts.timeout, opts.asyncOp);
}

WorkPtr ProcessGroupBluefog::alltoall_base(at::Tensor& output, at::Tensor& input,
                                           std::vector<int64_t>& output_splits,
                                           std::vector<int64_t>& input_splits,
                                           const c10d::AllToAllOptions& opts) {
  checkProcess("alltoall_base");
  const Validate validate(engine_->members(), "alltoall_base");
  validate.tensor(input, "the input");
  validate.tensor(output, "the output");
  validate.sameType(output, input, "the output");
  validate.contiguous(output, "the output");
  const std::vector<size_t> sent = validate.splits(input_splits, input, "the input");
  const std::vector<size_t> got = validate.splits(output_splits, output, "the output");
  const auto self = static_cast<size_t>(rank_);
  validate.elements(static_cast<int64_t>(got[self] / output.itemsize()),
                    static_cast<int64_t>(sent[self] / input.itemsize()),
                    "the output's split for this rank's own input");
  ExchangeBlocks blocks(size_);
  blocks.sendSplit(input, sent);
  blocks.receiveSplit(output, got);
  return postExchange(
      OpKind::kAllToAll, -1, std::move(blocks),
      {nullptr, c10d::OpType::ALLTOALL_BASE, "bluefog:all_to_all", {input}, {output}}, opts.timeout,
      opts.asyncOp);
}

}  // namespace bluefog
