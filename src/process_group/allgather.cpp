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
  struct Memory {
    Flat input;
    std::vector<Flat> outputs;
  };
  auto memory = std::make_shared<Memory>(Memory{Flat::input(input), {}});
  std::vector<std::byte*> data;
  std::vector<size_t> bytes;
  for (const at::Tensor& output : list) {
    validate.tensor(output, "an output");
    validate.writable(output, "an output");
    validate.sameType(output, input, "an output");
    memory->outputs.push_back(Flat::output(output));
    data.push_back(memory->outputs.back().data());
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
  op->scripts.push_back(bluefog::allgather(engine_->board(), *op, memory->input.readable(),
                                           std::move(data), std::move(bytes)));
  std::vector<const Flat*> results;
  for (const Flat& output : memory->outputs) {
    results.push_back(&output);
  }
  own(*op, memory, results);
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
  auto memory = std::make_shared<std::pair<Flat, at::Tensor>>(Flat::input(input), output);
  const size_t bytes = input.nbytes();
  std::vector<std::byte*> data;
  for (int rank = 0; rank < size_; ++rank) {
    data.push_back(static_cast<std::byte*>(output.mutable_data_ptr()) +
                   static_cast<size_t>(rank) * bytes);
  }

  auto op = std::make_shared<Op>(Op::Kind::kCollective, signatureOf(OpKind::kAllGather, input),
                                 deadline(opts.timeout));
  op->scripts.push_back(bluefog::allgather(engine_->board(), *op, memory->first.readable(),
                                           std::move(data),
                                           std::vector<size_t>(static_cast<size_t>(size_), bytes)));
  op->memory = std::move(memory);
  return post({std::move(op),
               c10d::OpType::_ALLGATHER_BASE,
               "bluefog:all_gather",
               {input},
               {output},
               opts.asyncOp});
}

}  // namespace bluefog
