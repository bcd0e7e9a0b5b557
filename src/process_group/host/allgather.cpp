#include <algorithm>
#include <numeric>

#include "process_group/host/Call.hpp"
#include "process_group/host/Overlap.hpp"

namespace bluefog {
namespace {

// Returns the input, or a copy of it if another rank's part could be written over it before it has
// been read. The input may lie where this rank's own part goes to.
Flat apart(const at::Tensor& input, size_t own, const std::vector<std::byte*>& parts,
           const std::vector<size_t>& bytes) {
  Flat flat = Flat::input(input);
  const Bytes read{flat.readable(), input.nbytes()};
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const bool in_place = rank == own && read.begin == parts[rank];
    if (!in_place && read.overlap({parts[rank], bytes[rank]})) {
      return Flat::copy(input);
    }
  }
  return flat;
}

// Returns whether two of the outputs share memory, as those of `[tensor] * n` do.
bool overlap(const std::vector<at::Tensor>& outputs) {
  std::vector<Bytes> all;
  std::transform(outputs.begin(), outputs.end(), std::back_inserter(all), Bytes::of);
  std::sort(all.begin(), all.end(),
            [](const Bytes& a, const Bytes& b) { return std::less<>()(a.begin, b.begin); });
  return std::adjacent_find(all.begin(), all.end(), [](const Bytes& a, const Bytes& b) {
           return a.overlap(b);
         }) != all.end();
}

}  // namespace

ProcessGroupBluefog::Call ProcessGroupBluefog::allgatherCall(const Validate& validate,
                                                             const at::Tensor& input,
                                                             const std::vector<at::Tensor>& list,
                                                             std::chrono::milliseconds timeout) {
  validate.listLength(list.size(), "the output list");
  auto buffers = std::make_shared<Buffers>();
  std::vector<std::byte*> data;
  std::vector<size_t> bytes;
  for (const at::Tensor& output : list) {
    validate.tensor(output, "an output");
    validate.writable(output, "an output");
    validate.sameType(output, input, "an output");
  }
  // The parts of the ranks arrive in any order. If outputs share memory, the parts arrive
  // elsewhere, and are copied to the outputs one after the other.
  const bool is_apart = overlap(list);
  for (const at::Tensor& output : list) {
    buffers->outputs.push_back(is_apart ? Flat::outputApart(output) : Flat::output(output));
    data.push_back(buffers->outputs.back().data());
    bytes.push_back(output.nbytes());
  }
  validate.elements(list[static_cast<size_t>(rank_)].numel(), input.numel(),
                    "the output for this rank's own input");
  buffers->inputs.push_back(apart(input, static_cast<size_t>(rank_), data, bytes));
  Signature signature = signatureOf(OpKind::kAllGather, input);
  if (std::any_of(bytes.begin(), bytes.end(), [&](size_t size) { return size != bytes[0]; })) {
    // The ranks give different sizes, so what they must agree on is the list of all sizes.
    signature.count = std::accumulate(bytes.begin(), bytes.end(), size_t{0}) / input.itemsize();
    signature.detail = digest(bytes);
  }

  auto op = std::make_shared<CollectiveOp>(signature, deadline(timeout));
  op->tasks.push_back(bluefog::allgather(engine_->board(), engine_->returns(), *op,
                                         buffers->inputs[0].readable(), std::move(data),
                                         std::move(bytes)));
  own(*op, std::move(buffers));
  return {std::move(op), c10d::OpType::ALLGATHER, "bluefog:all_gather", {input}, list};
}

ProcessGroupBluefog::Call ProcessGroupBluefog::allgatherBaseCall(
    const Validate& validate, const at::Tensor& input, const at::Tensor& output,
    std::chrono::milliseconds timeout) {
  validate.wholeAndPart(output, "the output", input, "the input");
  validate.writable(output, "the output");
  auto buffers = std::make_shared<Buffers>(Buffers{{}, {Flat::output(output)}});
  const std::vector<size_t> bytes(static_cast<size_t>(size_), input.nbytes());
  std::vector<std::byte*> data;
  for (size_t rank = 0; rank < bytes.size(); ++rank) {
    data.push_back(buffers->outputs[0].data() + rank * input.nbytes());
  }
  buffers->inputs.push_back(apart(input, static_cast<size_t>(rank_), data, bytes));

  auto op =
      std::make_shared<CollectiveOp>(signatureOf(OpKind::kAllGather, input), deadline(timeout));
  op->tasks.push_back(bluefog::allgather(engine_->board(), engine_->returns(), *op,
                                         buffers->inputs[0].readable(), std::move(data), bytes));
  own(*op, std::move(buffers));
  return {std::move(op), c10d::OpType::_ALLGATHER_BASE, "bluefog:all_gather", {input}, {output}};
}

WorkPtr ProcessGroupBluefog::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                       std::vector<at::Tensor>& inputs,
                                       const c10d::AllgatherOptions& opts) {
  checkProcess("allgather");
  const Validate validate(engine_->members(), "allgather");
  const at::Tensor& input = validate.only(inputs, "input");
  TORCH_CHECK_VALUE(outputs.size() == 1, validate.who(), "expected one list of outputs, got ",
                    outputs.size());
  return post(allgatherCall(validate, input, outputs.front(), opts.timeout), opts.asyncOp);
}

WorkPtr ProcessGroupBluefog::_allgather_base(at::Tensor& output, at::Tensor& input,
                                             const c10d::AllgatherOptions& opts) {
  checkProcess("all_gather_into_tensor");
  const Validate validate(engine_->members(), "all_gather_into_tensor");
  return post(allgatherBaseCall(validate, input, output, opts.timeout), opts.asyncOp);
}

// Gathers several tensors: outputs[r][i] gets inputs[i] of rank r.
WorkPtr ProcessGroupBluefog::allgather_coalesced(std::vector<std::vector<at::Tensor>>& outputs,
                                                 std::vector<at::Tensor>& inputs,
                                                 const c10d::AllgatherOptions& opts) {
  checkProcess("allgather_coalesced");
  const Validate validate(engine_->members(), "allgather_coalesced");
  validate.listLength(outputs.size(), "the list of output lists");
  std::vector<std::vector<at::Tensor>> lists(inputs.size());
  for (const std::vector<at::Tensor>& of_rank : outputs) {
    validate.sameLength(of_rank.size(), "an output list", inputs.size(), "inputs");
    for (size_t i = 0; i < inputs.size(); ++i) {
      lists[i].push_back(of_rank[i]);
    }
  }
  std::vector<Call> calls;
  std::vector<at::Tensor> all;
  const std::vector<at::Tensor> kept = apartFromOthers(inputs, lists);
  for (size_t i = 0; i < inputs.size(); ++i) {
    validate.tensor(kept[i], "an input");
    calls.push_back(allgatherCall(validate, kept[i], lists[i], opts.timeout));
    all.insert(all.end(), lists[i].begin(), lists[i].end());
  }
  return postAll(validate, std::move(calls),
                 {nullptr, c10d::OpType::ALLGATHER_COALESCED, "bluefog:all_gather", inputs, all},
                 opts.asyncOp);
}

WorkPtr ProcessGroupBluefog::allgather_into_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                                             std::vector<at::Tensor>& inputs,
                                                             const c10d::AllgatherOptions& opts) {
  checkProcess("allgather_into_tensor_coalesced");
  const Validate validate(engine_->members(), "allgather_into_tensor_coalesced");
  validate.sameLength(outputs.size(), "the output list", inputs.size(), "inputs");
  std::vector<Call> calls;
  const std::vector<at::Tensor> kept = apartFromOthers(inputs, outputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    calls.push_back(allgatherBaseCall(validate, kept[i], outputs[i], opts.timeout));
  }
  return postAll(validate, std::move(calls),
                 {nullptr, c10d::OpType::COALESCED, "bluefog:all_gather", inputs, outputs},
                 opts.asyncOp);
}

}  // namespace bluefog
