#include <set>

#include "process_group/Call.hpp"

namespace bluefog {
namespace {

void requireRanks(const Validate& validate, int own, const std::vector<WeightedRank>& ranks,
                  const char* what) {
  std::set<int> seen;
  for (const WeightedRank& it : ranks) {
    validate.rank(it.rank, what);
    TORCH_CHECK_VALUE(it.rank != own, validate.who(), what, " rank ", it.rank,
                      " is this rank itself");
    TORCH_CHECK_VALUE(seen.insert(it.rank).second, validate.who(), what, " rank ", it.rank,
                      " is given twice");
  }
}

}  // namespace

WorkPtr ProcessGroupBluefog::neighborAllreduce(const at::Tensor& input,
                                               const NeighborOptions& opts) {
  checkProcess("neighbor_allreduce");
  const Validate validate(engine_->members(), "neighbor_allreduce");
  validate.tensor(input, "the input");
  TORCH_CHECK_TYPE(isFloating(dtypeOf(input)), validate.who(), "elements of type ", typeName(input),
                   " cannot be averaged; use float16, bfloat16, float32 or float64");
  requireRanks(validate, rank_, opts.sources, "source");
  requireRanks(validate, rank_, opts.destinations, "destination");
  const at::Tensor output = outputs_.emptyLike(input);
  auto buffers = std::make_shared<Buffers>(Buffers{{Flat::input(input)}, {Flat::output(output)}});
  auto op = std::make_shared<Op>(Op::Kind::kMessage, signatureOf(OpKind::kNeighborAllReduce, input),
                                 deadline(c10d::kUnsetTimeout));
  op->outgoing = buffers->inputs[0].readable();
  for (const WeightedRank& destination : opts.destinations) {
    op->scripts.push_back(
        bluefog::send(engine_->mailbox(), *op, destination.rank, 0, destination.weight));
    ++op->sends;
    op->partners.push_back(destination.rank);
  }
  for (const WeightedRank& source : opts.sources) {
    op->partners.push_back(source.rank);
  }
  op->scripts.push_back(neighborSum(engine_->mailbox(), *op, op->outgoing, opts.self_weight,
                                    opts.sources, opts.divisor, buffers->outputs[0].data()));
  own(*op, std::move(buffers));
  return post(
      {std::move(op), c10d::OpType::UNKNOWN, "bluefog:neighbor_allreduce", {input}, {output}},
      opts.async_op);
}

}  // namespace bluefog
