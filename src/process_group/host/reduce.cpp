#include "process_group/host/Call.hpp"

namespace bluefog {

WorkPtr ProcessGroupBluefog::reduce(std::vector<at::Tensor>& tensors,
                                    const c10d::ReduceOptions& opts) {
  checkProcess("reduce");
  const Validate validate(engine_->members(), "reduce");
  const at::Tensor& tensor = validate.only(tensors, "input");
  validate.root(opts.rootRank, opts.rootTensor);
  Signature signature = validate.reduction(OpKind::kReduce, opts.reduceOp, tensor);
  signature.root = static_cast<int16_t>(opts.rootRank);

  auto op = std::make_shared<CollectiveOp>(signature, deadline(opts.timeout));
  op->factor = validate.factor(opts.reduceOp);
  auto buffers = std::make_shared<Buffers>();
  const bool is_root = opts.rootRank == rank_;
  if (is_root) {
    validate.writable(tensor, "the input");
  }
  std::vector<Flat>& used = is_root ? buffers->outputs : buffers->inputs;
  used.push_back(Flat::input(tensor));
  op->tasks.push_back(bluefog::reduce(engine_->board(), *op, used[0].readable(),
                                      is_root ? used[0].data() : nullptr));
  own(*op, std::move(buffers));
  return post({std::move(op), c10d::OpType::REDUCE, "bluefog:reduce", tensors, tensors},
              opts.asyncOp);
}

}  // namespace bluefog
