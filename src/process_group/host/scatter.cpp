#include "process_group/host/ExchangeBlocks.hpp"

namespace bluefog {

WorkPtr ProcessGroupBluefog::scatter(std::vector<at::Tensor>& outputs,
                                     std::vector<std::vector<at::Tensor>>& inputs,
                                     const c10d::ScatterOptions& opts) {
  checkProcess("scatter");
  const Validate validate(engine_->members(), "scatter");
  const at::Tensor& output = validate.only(outputs, "output");
  validate.writable(output, "the output");
  validate.root(opts.rootRank, 0);
  const auto root = static_cast<int>(opts.rootRank);
  const std::vector<at::Tensor>& list = validate.rootsList(inputs, root, "input");

  ExchangeBlocks blocks(size_);
  blocks.receive(root, output);
  for (size_t rank = 0; rank < list.size(); ++rank) {
    validate.tensor(list[rank], "an input");
    validate.sameType(list[rank], output, "an input");
    blocks.send(static_cast<int>(rank), list[rank]);
  }
  if (rank_ == root) {
    validate.elements(output.numel(), list[static_cast<size_t>(root)].numel(), "the output");
  }
  return postExchange(OpKind::kScatter, root, std::move(blocks),
                      {nullptr, c10d::OpType::SCATTER, "bluefog:scatter", list, outputs},
                      opts.timeout, opts.asyncOp);
}

}  // namespace bluefog
