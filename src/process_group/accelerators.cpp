// Operations between neighbours on an accelerator's tensors. Its backend knows neither what a peer
// calls nor whether it lives, and would wait for ever, or take other bytes for the expected ones.
// So the ranks first tell each other over the CPU what they call.
#include <ATen/record_function.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "process_group/Call.hpp"
#include "process_group/Signatures.hpp"

namespace bluefog {

using Tensors = std::vector<at::Tensor>;

namespace {

// What a rank calls with CPU tensors is something else.
Signature onDevice(Signature signature) {
  signature.where = Where::kDevice;
  return signature;
}

}  // namespace

// With which of its partners a rank agrees on a call, and what these have told of it. Both sides of
// an edge know that: who does not agree with one goes on with the others, which else would wait,
// and raises then.
class ProcessGroupBluefog::Agreement {
 public:
  void add(int rank, const Notice& told) { told_.emplace(rank, told); }
  void add(std::exception_ptr error) {
    if (!error_) {
      error_ = std::move(error);
    }
  }

  // Those edges on which both agree, with the weights that the sources have told.
  Edges among(const Edges& edges) const {
    Edges agreed{edges.self_weight, {}, {}, edges.divisor};
    for (const WeightedRank& source : edges.sources) {
      if (const auto found = told_.find(source.rank); found != told_.end()) {
        agreed.sources.push_back({source.rank, source.weight * found->second.weight});
      }
    }
    for (const WeightedRank& destination : edges.destinations) {
      if (told_.count(destination.rank) > 0) {
        agreed.destinations.push_back(destination);
      }
    }
    return agreed;
  }
  bool isWith(int rank) const { return told_.count(rank) > 0; }
  int64_t rowsFrom(int rank) const { return told_.at(rank).rows; }

  template <class Exchange>
  WorkPtr run(const Exchange& exchange) const {
    if (!error_) {
      return exchange();
    }
    try {
      exchange();
    } catch (const std::exception&) {
      // of what has an error already
    }
    std::rethrow_exception(error_);
  }

 private:
  std::map<int, Notice> told_;
  std::exception_ptr error_;
};

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
              "outside of startCoalescing() and endCoalescing()");
  const std::optional<at::Device> bound = getBoundDeviceId();
  for (const at::Tensor& tensor : tensors) {
    const bool is_there = accelerator_->carries(tensor);
    TORCH_CHECK_VALUE(!is_there || !bound || tensor.device() == *bound, validate.who(),
                      "a tensor is on ", tensor.device(), ", and the group is bound to ", *bound,
                      " (init_process_group's device_id); move it there with .to()");
  }
  return validate;
}

// `rows`: of what each destination gets, where they are gathered. An operation for each partner, so
// that each can fail alone.
ProcessGroupBluefog::Agreement ProcessGroupBluefog::agree(const Signature& signature,
                                                          const char* title, const Tensors& inputs,
                                                          const Edges& edges,
                                                          const std::vector<int64_t>& rows,
                                                          int64_t tag) {
  struct Asked {
    Notice own;
    Notice theirs;
  };
  std::vector<std::pair<std::shared_ptr<Op>, std::shared_ptr<Asked>>> all;
  for (size_t i = 0; i < edges.partners.size(); ++i) {
    const int partner = edges.partners[i];
    const auto asked = std::make_shared<Asked>();
    if (i < edges.destinations.size()) {
      asked->own = {rows.empty() ? 0 : rows[i], edges.destinations[i].weight};
    }
    auto op = std::make_shared<Op>(Op::Kind::kMessage, signature, deadline(c10d::kUnsetTimeout));
    const auto* bytes = reinterpret_cast<const std::byte*>(&asked->own.rows);
    addSend(
        engine_->mailbox(), *op,
        {partner, tag, ConstSpans(ConstSpan{bytes, sizeof asked->own.rows}), asked->own.weight});
    op->scripts.push_back(takeNotice(engine_->mailbox(), *op, partner, tag, asked->theirs));
    op->partners = {partner};
    op->memory = asked;
    engine_->post(op, Engine::Who::kCaller);
    log_.add(title, op, inputs, {});
    all.emplace_back(std::move(op), asked);
  }
  ++issued_;
  Agreement agreement;
  for (const auto& [op, asked] : all) {
    engine_->wait(*op, Deadline::never());
    if (op->error) {
      agreement.add(frontend_.raised(op->error));
    } else {
      agreement.add(op->partners.front(), asked->theirs);
    }
  }
  return agreement;
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
  const Agreement agreement = agree(onDevice(signatureOfAll(kind, inputs)), profilingTitle(kind),
                                    inputs, edges, {}, opts.tag);
  return agreement.run([&] {
    return accelerator_->neighborAllreduce(inputs, agreement.among(edges), opts.async_op);
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
  std::vector<int64_t> rows;
  for (const at::Tensor& input : inputs) {
    rows.push_back(input.size(0));
  }
  const Agreement agreement =
      agree(onDevice(signatureOfRows(kind, like)), title, {like}, edges, rows, opts.tag);
  return agreement.run([&] {
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
    return accelerator_->neighborGather(like, sent, agreed, received, opts.in_one, opts.async_op);
  });
}

// A part of what a rank hands out comes from every rank of its machine, and so from other machines:
// all of the group have to agree.
WorkPtr ProcessGroupBluefog::hierarchicalNeighborAllreduceThere(const at::Tensor& input,
                                                                const std::vector<int>& locals,
                                                                const Edges& between,
                                                                const MessageOptions& opts) {
  const OpKind kind = OpKind::kHierarchicalNeighborAllReduce;
  RECORD_FUNCTION(profilingTitle(kind), std::vector<c10::IValue>());
  const Signature signature = onDevice(signatureOf(kind, input));
  auto op = std::make_shared<Op>(Op::Kind::kCollective, signature, deadline(c10d::kUnsetTimeout));
  op->scripts.push_back(bluefog::barrier(engine_->board(), *op));
  post({std::move(op), c10d::OpType::UNKNOWN, profilingTitle(kind), {input}, {}}, false);
  const Agreement agreement =
      agree(signature, profilingTitle(kind), {input}, between, {}, opts.tag);
  return agreement.run([&] {
    return accelerator_->hierarchicalNeighborAllreduce(input, locals, agreement.among(between),
                                                       opts.async_op);
  });
}

}  // namespace bluefog
