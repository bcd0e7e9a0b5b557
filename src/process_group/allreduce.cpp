#include "process_group/Call.hpp"

namespace bluefog {

ProcessGroupBluefog::Call ProcessGroupBluefog::allreduceCall(const Validate& validate,
                                                             const at::Tensor& tensor,
                                                             const c10d::ReduceOp& reduction,
                                                             std::chrono::milliseconds timeout) {
  validate.writable(tensor, "the input");
  const Signature signature = validate.reduction(OpKind::kAllReduce, reduction, tensor);
  auto op = std::make_shared<Op>(Op::Kind::kCollective, signature, deadline(timeout));
  auto buffers = std::make_shared<Buffers>(Buffers{{}, {Flat::input(tensor)}});
  op->factor = validate.factor(reduction);
  op->scripts.push_back(
      bluefog::allreduce(engine_->board(), engine_->returns(), *op, buffers->outputs[0].data()));
  own(*op, std::move(buffers));
  return {std::move(op), c10d::OpType::ALLREDUCE, "bluefog:all_reduce", {tensor}, {tensor}};
}

WorkPtr ProcessGroupBluefog::allreduce(std::vector<at::Tensor>& tensors,
                                       const c10d::AllreduceOptions& opts) {
  if (tensors.size() == 1 && tensors.front().defined() && tensors.front().is_sparse()) {
    return allreduce_sparse(tensors, opts);
  }
  checkProcess("allreduce");
  const Validate validate(engine_->members(), "allreduce");
  const at::Tensor& tensor = validate.only(tensors, "input");
  return post(allreduceCall(validate, tensor, opts.reduceOp, opts.timeout), opts.asyncOp);
}

}  // namespace bluefog
