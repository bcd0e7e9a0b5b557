#include <algorithm>
#include <iterator>
#include <utility>

#include "process_group/host/Call.hpp"
#include "process_group/host/Signatures.hpp"

namespace bluefog {

WorkPtr ProcessGroupBluefog::hierarchicalNeighborAllreduce(const at::Tensor& input,
                                                           const std::vector<int>& locals,
                                                           const Edges& between,
                                                           const MessageOptions& opts) {
  return countingRefusals(OpKind::kHierarchicalNeighborAllReduce, between, opts.match,
                          opts.match.tag,
                          [&] { return averageMachines(input, locals, between, opts); });
}

void ProcessGroupBluefog::checkMachine(const Validate& validate,
                                       const std::vector<int>& locals) const {
  TORCH_CHECK_VALUE(std::find(locals.begin(), locals.end(), rank_) != locals.end(), validate.who(),
                    "this rank is not on its own machine");
  for (const int local : locals) {
    validate.rank(local, "local");
  }
}

WorkPtr ProcessGroupBluefog::averageMachines(const at::Tensor& input,
                                             const std::vector<int>& locals, const Edges& between,
                                             const MessageOptions& opts) {
  const OpKind kind = OpKind::kHierarchicalNeighborAllReduce;
  checkProcess(name(kind));
  const Validate validate(engine_->members(), name(kind));
  validate.summable(input);
  checkMachine(validate, locals);
  const auto self = std::find(locals.begin(), locals.end(), rank_);
  struct Memory {
    Buffers buffers;
    std::vector<std::byte> part;
  };
  const at::Tensor output = outputs_.emptyLike(input);
  auto memory = std::make_shared<Memory>(
      Memory{{{Flat::input(input)}, {Flat::output(output)}},
             std::vector<std::byte>(largestPart(static_cast<size_t>(input.numel()), locals.size()) *
                                    input.element_size())});
  auto op = neighborsOp(signatureAmongMachines(input, locals.size()), between, opts.match);
  Hierarchy hierarchy;
  hierarchy.locals = locals;
  hierarchy.local_rank = static_cast<int>(self - locals.begin());
  hierarchy.divisor = static_cast<double>(locals.size());
  hierarchy.between.self_weight = between.self_weight;
  hierarchy.between.sources = between.sources;
  hierarchy.between.divisor = between.divisor;
  hierarchy.outward = between.destinations;
  addHierarchicalSum(engine_->mailbox(), *op, std::move(hierarchy),
                     memory->buffers.inputs[0].readable(), memory->part.data(),
                     memory->buffers.outputs[0].data(), opts.match.tag);
  op->partners = between.partners;
  std::remove_copy(locals.begin(), locals.end(), std::back_inserter(op->partners), rank_);
  op->memory = std::move(memory);
  return post({std::move(op), c10d::OpType::UNKNOWN, profilingTitle(kind), {input}, {output}},
              opts.async_op);
}

}  // namespace bluefog
