#include "process_group/host/Call.hpp"

namespace bluefog {

WorkPtr ProcessGroupBluefog::broadcast(std::vector<at::Tensor>& tensors,
                                       const c10d::BroadcastOptions& opts) {
  checkProcess("broadcast");
  const Validate validate(engine_->members(), "broadcast");
  const at::Tensor& tensor = validate.only(tensors, "input");
  validate.root(opts.rootRank, opts.rootTensor);
  const bool is_root = opts.rootRank == rank_;
  if (!is_root) {
    validate.writable(tensor, "the input");
  }
  Signature signature = signatureOf(OpKind::kBroadcast, tensor);
  signature.root = static_cast<int16_t>(opts.rootRank);

  auto op = std::make_shared<CollectiveOp>(signature, deadline(opts.timeout));
  auto buffers = std::make_shared<Buffers>();
  // The root's tensor is only read.
  std::vector<Flat>& flats = is_root ? buffers->inputs : buffers->outputs;
  flats.push_back(is_root ? Flat::input(tensor) : Flat::output(tensor));
  op->tasks.push_back(
      bluefog::broadcast(engine_->board(), engine_->returns(), *op, flats[0].data()));
  own(*op, std::move(buffers));
  return post({std::move(op), c10d::OpType::BROADCAST, "bluefog:broadcast", tensors, tensors},
              opts.asyncOp);
}

}  // namespace bluefog
