#include <numeric>
#include <optional>

#include "process_group/host/Call.hpp"
#include "process_group/host/Overlap.hpp"

namespace bluefog {
namespace {

// Returns the input, or a copy of it if the output could be written over it before it has been
// read. The output may lie where this rank's own part is, `own_part` bytes into the input.
// `own_part` is nothing if the part is not in this input.
Flat apart(const at::Tensor& input, std::optional<size_t> own_part, const Flat& output) {
  Flat flat = Flat::input(input);
  const Bytes read{flat.readable(), input.nbytes()};
  const Bytes written{output.readable(), output.tensor().nbytes()};
  const bool in_place = own_part && read.begin + *own_part == written.begin;
  return !in_place && read.overlap(written) ? Flat::copy(input) : flat;
}

}  // namespace

ProcessGroupBluefog::Call ProcessGroupBluefog::reduceScatterBaseCall(
    const Validate& validate, const at::Tensor& input, const at::Tensor& output,
    const c10d::ReduceOp& reduction, std::chrono::milliseconds timeout) {
  validate.wholeAndPart(input, "the input", output, "the output");
  validate.writable(output, "the output");
  Signature signature = validate.reduction(OpKind::kReduceScatter, reduction, input);
  auto buffers = std::make_shared<Buffers>(Buffers{{}, {Flat::output(output)}});
  const size_t own_part = static_cast<size_t>(rank_) * output.nbytes();
  buffers->inputs.push_back(apart(input, own_part, buffers->outputs[0]));
  std::vector<const std::byte*> data;
  for (int rank = 0; rank < size_; ++rank) {
    data.push_back(buffers->inputs[0].readable() + static_cast<size_t>(rank) * output.nbytes());
  }
  std::vector<size_t> counts(static_cast<size_t>(size_),
                             signature.count / static_cast<size_t>(size_));
  signature.detail = digest(counts);

  auto op = std::make_shared<CollectiveOp>(signature, deadline(timeout));
  op->factor = validate.factor(reduction);
  op->tasks.push_back(bluefog::reduceScatter(engine_->board(), engine_->returns(), *op,
                                             std::move(data), std::move(counts),
                                             buffers->outputs[0].data()));
  own(*op, std::move(buffers));
  return {std::move(op),
          c10d::OpType::_REDUCE_SCATTER_BASE,
          "bluefog:reduce_scatter",
          {input},
          {output}};
}

WorkPtr ProcessGroupBluefog::reduce_scatter(std::vector<at::Tensor>& outputs,
                                            std::vector<std::vector<at::Tensor>>& inputs,
                                            const c10d::ReduceScatterOptions& opts) {
  checkProcess("reduce_scatter");
  const Validate validate(engine_->members(), "reduce_scatter");
  const at::Tensor& output = validate.only(outputs, "output");
  validate.writable(output, "the output");
  TORCH_CHECK_VALUE(inputs.size() == 1, validate.who(), "expected one list of inputs, got ",
                    inputs.size());
  const std::vector<at::Tensor>& list = inputs.front();
  validate.listLength(list.size(), "the input list");
  Signature signature = validate.reduction(OpKind::kReduceScatter, opts.reduceOp, output);
  auto buffers = std::make_shared<Buffers>(Buffers{{}, {Flat::output(output)}});
  std::vector<const std::byte*> data;
  std::vector<size_t> counts;
  for (const at::Tensor& input : list) {
    validate.tensor(input, "an input");
    validate.sameType(input, output, "an input");
    counts.push_back(input.nbytes() / width(signature.dtype));
  }
  validate.elements(output.numel(), list[static_cast<size_t>(rank_)].numel(), "the output");
  for (size_t rank = 0; rank < list.size(); ++rank) {
    const bool is_own = rank == static_cast<size_t>(rank_);
    const auto own_part = is_own ? std::optional<size_t>(0) : std::nullopt;
    buffers->inputs.push_back(apart(list[rank], own_part, buffers->outputs[0]));
    data.push_back(buffers->inputs.back().readable());
  }
  signature.count = std::accumulate(counts.begin(), counts.end(), size_t{0});
  signature.detail = digest(counts);

  auto op = std::make_shared<CollectiveOp>(signature, deadline(opts.timeout));
  op->factor = validate.factor(opts.reduceOp);
  op->tasks.push_back(bluefog::reduceScatter(engine_->board(), engine_->returns(), *op,
                                             std::move(data), std::move(counts),
                                             buffers->outputs[0].data()));
  own(*op, std::move(buffers));
  return post(
      {std::move(op), c10d::OpType::REDUCE_SCATTER, "bluefog:reduce_scatter", list, outputs},
      opts.asyncOp);
}

WorkPtr ProcessGroupBluefog::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                  const c10d::ReduceScatterOptions& opts) {
  checkProcess("reduce_scatter_tensor");
  const Validate validate(engine_->members(), "reduce_scatter_tensor");
  return post(reduceScatterBaseCall(validate, input, output, opts.reduceOp, opts.timeout),
              opts.asyncOp);
}

WorkPtr ProcessGroupBluefog::reduce_scatter_tensor_coalesced(
    std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
    const c10d::ReduceScatterOptions& opts) {
  checkProcess("reduce_scatter_tensor_coalesced");
  const Validate validate(engine_->members(), "reduce_scatter_tensor_coalesced");
  validate.sameLength(outputs.size(), "the output list", inputs.size(), "inputs");
  std::vector<Call> calls;
  const std::vector<at::Tensor> kept = apartFromOthers(inputs, outputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    calls.push_back(
        reduceScatterBaseCall(validate, kept[i], outputs[i], opts.reduceOp, opts.timeout));
  }
  return postAll(validate, std::move(calls),
                 {nullptr, c10d::OpType::COALESCED, "bluefog:reduce_scatter", inputs, outputs},
                 opts.asyncOp);
}

}  // namespace bluefog
