#include "process_group/Call.hpp"

namespace bluefog {

WorkPtr ProcessGroupBluefog::allreduce(std::vector<at::Tensor>& tensors,
                                       const c10d::AllreduceOptions& opts) {
  checkProcess("allreduce");
  const Validate validate(engine_->members(), "allreduce");
  const at::Tensor& tensor = validate.only(tensors, "input");
  validate.writable(tensor, "the input");
  Signature signature = signatureOf(OpKind::kAllReduce, tensor);
  signature.reduce = validate.reduction(opts.reduceOp, tensor);

  auto op = std::make_shared<Op>(Op::Kind::kCollective, signature, deadline(opts.timeout));
  auto buffers = std::make_shared<Buffers>(Buffers{{}, {Flat::input(tensor)}});
  op->factor = validate.factor(opts.reduceOp);
  op->scripts.push_back(
      bluefog::allreduce(engine_->board(), engine_->returns(), *op, buffers->outputs[0].data()));
  own(*op, std::move(buffers));
  return post({std::move(op), c10d::OpType::ALLREDUCE, "bluefog:all_reduce", tensors, tensors,
               opts.asyncOp});
}

}  // namespace bluefog
