#include "process_group/host/ExchangeBlocks.hpp"

namespace bluefog {

WorkPtr ProcessGroupBluefog::gather(std::vector<std::vector<at::Tensor>>& outputs,
                                    std::vector<at::Tensor>& inputs,
                                    const c10d::GatherOptions& opts) {
  checkProcess("gather");
  const Validate validate(engine_->members(), "gather");
  const at::Tensor& input = validate.only(inputs, "input");
  validate.root(opts.rootRank, 0);
  const auto root = static_cast<int>(opts.rootRank);
  const std::vector<at::Tensor>& list = validate.rootsList(outputs, root, "output");

  ExchangeBlocks blocks(size_);
  blocks.send(root, input);
  for (size_t rank = 0; rank < list.size(); ++rank) {
    validate.tensor(list[rank], "an output");
    validate.writable(list[rank], "an output");
    validate.sameType(list[rank], input, "an output");
    blocks.receive(static_cast<int>(rank), list[rank]);
  }
  if (rank_ == root) {
    validate.elements(list[static_cast<size_t>(root)].numel(), input.numel(),
                      "the output for this rank's own input");
  }
  return postExchange(OpKind::kGather, root, std::move(blocks),
                      {nullptr, c10d::OpType::GATHER, "bluefog:gather", inputs, list}, opts.timeout,
                      opts.asyncOp);
}

#ifdef C10D_BACKEND_HAS_HOOKS
WorkPtr ProcessGroupBluefog::gather_single(at::Tensor& output, at::Tensor& input,
                                           const c10d::GatherOptions& opts) {
  checkProcess("gather_single");
  const Validate validate(engine_->members(), "gather_single");
  validate.tensor(input, "the input");
  validate.root(opts.rootRank, 0);
  const auto root = static_cast<int>(opts.rootRank);
  ExchangeBlocks blocks(size_);
  blocks.send(root, input);
  std::vector<at::Tensor> outputs;
  if (rank_ == root) {
    validate.wholeAndPart(output, "the output", input, "the input");
    validate.writable(output, "the output");
    blocks.receiveSplit(output, std::vector<size_t>(static_cast<size_t>(size_), input.nbytes()));
    outputs.push_back(output);
  }
  return postExchange(
      OpKind::kGather, root, std::move(blocks),
      {nullptr, c10d::OpType::GATHER, "bluefog:gather", {input}, std::move(outputs)}, opts.timeout,
      opts.asyncOp);
}
#endif

}  // namespace bluefog
