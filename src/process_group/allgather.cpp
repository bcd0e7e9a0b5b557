#include <algorithm>
#include <numeric>

#include "process_group/Call.hpp"

namespace bluefog {

WorkPtr ProcessGroupBluefog::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                       std::vector<at::Tensor>& inputs,
                                       const c10d::AllgatherOptions& opts) {
  checkProcess("allgather");
  const Validate validate(engine_->members(), "allgather");
  const at::Tensor& input = validate.only(inputs, "input");
  TORCH_CHECK_VALUE(outputs.size() == 1, validate.who(), "expected one list of outputs, got ",
                    outputs.size());
  const std::vector<at::Tensor>& list = outputs.front();
  validate.listLength(list.size(), "the output list");
  auto buffers = std::make_shared<Buffers>(Buffers{{Flat::input(input)}, {}});
  std::vector<std::byte*> data;
  std::vector<size_t> bytes;
  for (const at::Tensor& output : list) {
    validate.tensor(output, "an output");
    validate.writable(output, "an output");
    validate.sameType(output, input, "an output");
    buffers->outputs.push_back(Flat::output(output));
    data.push_back(buffers->outputs.back().data());
    bytes.push_back(output.nbytes());
  }
  validate.elements(list[static_cast<size_t>(rank_)].numel(), input.numel(),
                    "the output for this rank's own input");
  Signature signature = signatureOf(OpKind::kAllGather, input);
  if (std::any_of(bytes.begin(), bytes.end(), [&](size_t size) { return size != bytes[0]; })) {
    // Every rank gives another size: what they must agree on is all of them.
    signature.count = std::accumulate(bytes.begin(), bytes.end(), size_t{0}) / input.itemsize();
    signature.detail = digest(bytes);
  }

  auto op = std::make_shared<Op>(Op::Kind::kCollective, signature, deadline(opts.timeout));
  op->scripts.push_back(bluefog::allgather(engine_->board(), *op, buffers->inputs[0].readable(),
                                           std::move(data), std::move(bytes)));
  own(*op, std::move(buffers));
  return post(
      {std::move(op), c10d::OpType::ALLGATHER, "bluefog:all_gather", inputs, list, opts.asyncOp});
}

WorkPtr ProcessGroupBluefog::_allgather_base(at::Tensor& output, at::Tensor& input,
                                             const c10d::AllgatherOptions& opts) {
  checkProcess("_allgather_base");
  const Validate validate(engine_->members(), "_allgather_base");
  validate.tensor(input, "the input");
  validate.tensor(output, "the output");
  validate.sameType(output, input, "the output");
  validate.elements(output.numel(), input.numel() * size_, "the output");
  TORCH_CHECK_VALUE(output.is_contiguous(), validate.who(), "the output must be contiguous");
  auto buffers = std::make_shared<Buffers>(Buffers{{Flat::input(input)}, {Flat::output(output)}});
  const size_t bytes = input.nbytes();
  std::vector<std::byte*> data;
  for (int rank = 0; rank < size_; ++rank) {
    data.push_back(buffers->outputs[0].data() + static_cast<size_t>(rank) * bytes);
  }

  auto op = std::make_shared<Op>(Op::Kind::kCollective, signatureOf(OpKind::kAllGather, input),
                                 deadline(opts.timeout));
  op->scripts.push_back(bluefog::allgather(engine_->board(), *op, buffers->inputs[0].readable(),
                                           std::move(data),
                                           std::vector<size_t>(static_cast<size_t>(size_), bytes)));
  own(*op, std::move(buffers));
  return post({std::move(op),
               c10d::OpType::_ALLGATHER_BASE,
               "bluefog:all_gather",
               {input},
               {output},
               opts.asyncOp});
}

}  // namespace bluefog
