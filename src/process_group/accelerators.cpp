// Operations between neighbours on an accelerator's tensors.
#include <ATen/record_function.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <utility>

#include "process_group/Call.hpp"
#include "process_group/Signatures.hpp"

namespace bluefog {

using Tensors = std::vector<at::Tensor>;

namespace {

// What a rank calls with CPU tensors, or by another tag, is something else.
Signature onDevice(Signature signature, int64_t tag) {
  signature.where = Where::kDevice;
  signature.detail ^= static_cast<uint64_t>(tag);
  return signature;
}

}  // namespace

// Any of them: then all have to be.
bool ProcessGroupBluefog::areAccelerators(const Tensors& tensors) const {
  return accelerator_ != nullptr &&
         std::any_of(tensors.begin(), tensors.end(),
                     [this](const at::Tensor& tensor) { return accelerator_->carries(tensor); });
}

// On another device than the group's the backend would refuse it, and only on this rank.
Validate ProcessGroupBluefog::validateThere(const char* op, const Tensors& tensors) const {
  checkProcess(op);
  const Validate validate(engine_->members(), op, accelerator_->type());
  TORCH_CHECK(!coalescing_.isOn(), validate.who(),
              "an accelerator's backend has one batch at a time, and this is one itself; call it "
              "outside of startCoalescing() and endCoalescing() (which an exception inside of "
              "torch's context manager does not call)");
  const std::optional<at::Device> bound = getBoundDeviceId();
  for (const at::Tensor& tensor : tensors) {
    const bool is_there = accelerator_->carries(tensor);
    TORCH_CHECK_VALUE(!is_there || !bound || tensor.device() == *bound, validate.who(),
                      "a tensor is on ", tensor.device(), ", and the group is bound to ", *bound,
                      " (init_process_group's device_id); move it there with .to()");
  }
  return validate;
}

WorkPtr ProcessGroupBluefog::neighborAllreduceThere(OpKind kind, const Tensors& inputs,
                                                    const Edges& edges,
                                                    const MessageOptions& opts) {
  RECORD_FUNCTION(profilingTitle(kind), std::vector<c10::IValue>());
  const Validate validate = validateThere(name(kind), inputs);
  for (const at::Tensor& input : inputs) {
    validate.summable(input);
  }
  validate.onOneDevice(inputs);
  const Accord::Call call{onDevice(signatureOfAll(kind, inputs), opts.tag), profilingTitle(kind),
                          inputs, edges};
  ++issued_;
  return accord_->exchanged(
      call, [&] { return accord_->on(call, deadline(c10d::kUnsetTimeout)); },
      [&](const Agree& agree) {
        return accelerator_->neighborAllreduce(inputs, edges, agree, opts.async_op);
      });
}

WorkPtr ProcessGroupBluefog::neighborGatherThere(OpKind kind, const at::Tensor& like,
                                                 const Tensors& inputs, const Edges& edges,
                                                 const GatherOptions& opts) {
  const char* title = opts.is_of_all ? "bluefog:allgather" : profilingTitle(kind);
  RECORD_FUNCTION(title, std::vector<c10::IValue>());
  Tensors all = inputs;
  all.push_back(like);
  const Validate validate = validateThere(opts.is_of_all ? "allgather" : name(kind), all);
  for (const at::Tensor& tensor : all) {
    validate.rows(tensor);
    validate.sameRows(tensor, like);
  }
  validate.onOneDevice(all);
  validate.sameLength(inputs.size(), "the list", edges.destinations.size(), "out-neighbours");
  const Tensors logged{like};
  Accord::Call call{onDevice(signatureOfRows(kind, like), opts.tag), title, logged, edges};
  call.called = opts.is_of_all ? "allgather" : "";
  for (const at::Tensor& input : inputs) {
    call.rows.push_back(input.size(0));
  }
  ++issued_;
  return accord_->exchanged(
      call, [&] { return accord_->on(call, deadline(c10d::kUnsetTimeout)); },
      [&](const Agree& agree) {
        const Agreement& agreement = agree();
        const Edges agreed = agreement.among(edges);
        Tensors sent;
        for (size_t i = 0; i < inputs.size(); ++i) {
          if (agreement.isWith(edges.destinations[i].rank)) {
            sent.push_back(inputs[i]);
          }
        }
        std::vector<int64_t> received;
        for (const WeightedRank& source : agreed.sources) {
          received.push_back(agreement.rowsFrom(source.rank));
        }
        return accelerator_->neighborGather(like, sent, agreed, received, opts.in_one,
                                            opts.async_op);
      });
}

// A part of what a rank hands out comes from every rank of its machine, and so from other machines:
// all of the group have to call the same, and none may lack a partner.
WorkPtr ProcessGroupBluefog::hierarchicalNeighborAllreduceThere(const at::Tensor& input,
                                                                const std::vector<int>& locals,
                                                                const Edges& between,
                                                                const MessageOptions& opts) {
  const OpKind kind = OpKind::kHierarchicalNeighborAllReduce;
  RECORD_FUNCTION(profilingTitle(kind), std::vector<c10::IValue>());
  const Tensors inputs{input};
  Accord::Call call{onDevice(signatureOf(kind, input), opts.tag), profilingTitle(kind), inputs,
                    between};
  std::remove_copy(locals.begin(), locals.end(), std::back_inserter(call.others), rank_);
  return accord_->exchanged(
      call, [&] { return agreeWithAll(call); },
      [&](const Agree& agree) {
        return accelerator_->hierarchicalNeighborAllreduce(input, locals, between, agree,
                                                           opts.async_op);
      });
}

Agreement ProcessGroupBluefog::agreeWithAll(const Accord::Call& call) {
  const Deadline limit = deadline(c10d::kUnsetTimeout);
  (void)whoFails(call, false, limit);
  Agreement agreement = accord_->on(call, deadline(c10d::kUnsetTimeout));
  std::vector<int> failed;
  try {
    failed = whoFails(call, agreement.error() != nullptr, Accord::endOf(limit));
  } catch (...) {  // others may have heard that this rank goes on
    accord_->giveUpOn(call);
    throw;
  }
  if (agreement.error()) {
    std::rethrow_exception(agreement.error());
  }
  if (!failed.empty()) {
    const Error error(Cause::kMismatch, failed,
                      who(call.signature.kind) + rankList(failed) +
                          " and partners on other machines do not agree on this call: there its "
                          "error says why");
    std::rethrow_exception(frontend_.raised(std::make_exception_ptr(error)));
  }
  return agreement;
}

std::vector<int> ProcessGroupBluefog::whoFails(const Accord::Call& call, bool fails,
                                               Deadline limit) {
  struct Told {
    std::byte own;
    std::vector<std::byte> all;
  };
  const auto told = std::make_shared<Told>(
      Told{std::byte(fails), std::vector<std::byte>(static_cast<size_t>(size_))});
  std::vector<std::byte*> places;
  for (std::byte& place : told->all) {
    places.push_back(&place);
  }
  auto op = std::make_shared<Op>(Op::Kind::kCollective, call.signature, limit);
  op->scripts.push_back(bluefog::allgather(engine_->board(), engine_->returns(), *op, &told->own,
                                           std::move(places),
                                           std::vector<size_t>(told->all.size(), 1)));
  op->memory = told;
  post({std::move(op), c10d::OpType::UNKNOWN, call.title, call.inputs, {}}, false);
  std::vector<int> failed;
  for (int rank = 0; rank < size_; ++rank) {
    if (told->all[static_cast<size_t>(rank)] != std::byte{0}) {
      failed.push_back(engine_->members().global(rank));
    }
  }
  return failed;
}

}  // namespace bluefog
