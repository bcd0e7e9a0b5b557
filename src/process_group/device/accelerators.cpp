// Operations between neighbours on an accelerator's tensors.
#include <ATen/record_function.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "core/Interruption.hpp"
#include "process_group/device/FailedWork.hpp"
#include "process_group/host/Call.hpp"
#include "process_group/host/Signatures.hpp"

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

// The Work of an asynchronous call tells its failure, as with CPU tensors, once its notices are
// sent: a rank that begins several, and waits then, so begins as many as the others. Where the
// group's calls are over, a call raises at once.
WorkPtr ProcessGroupBluefog::exchanged(const DeviceCall& call, bool async_op,
                                       const std::function<WorkPtr(Notices&)>& exchange) {
  ++issued_;
  try {
    return device_calls_->run(call, accelerator_->limit(groupsTimeout()), exchange);
  } catch (const Interruption&) {
    throw;
  } catch (...) {
    if (!async_op || call.match.op == nullptr) {
      throw;
    }
    return c10::make_intrusive<FailedWork>(rank_, hooks_.raised(std::current_exception()));
  }
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
  const DeviceCall call{onDevice(signatureOfAll(kind, inputs), opts.match.tag),
                        profilingTitle(kind), inputs, edges, opts.match};
  return exchanged(call, opts.async_op, [&](Notices& notices) {
    return accelerator_->neighborAllreduce(inputs, edges, notices, opts.async_op);
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
  DeviceCall call{onDevice(signatureOfRows(kind, like), opts.match.tag), title, logged, edges,
                  opts.match};
  call.called = opts.is_of_all ? "allgather" : "";
  for (const at::Tensor& input : inputs) {
    call.rows.push_back(input.size(0));
  }
  call.needs_rows = true;
  return exchanged(call, opts.async_op, [&](Notices& notices) {
    return accelerator_->neighborGather(like, inputs, edges, notices, opts.in_one, opts.async_op);
  });
}

WorkPtr ProcessGroupBluefog::hierarchicalNeighborAllreduceThere(const at::Tensor& input,
                                                                const std::vector<int>& locals,
                                                                const Edges& between,
                                                                const MessageOptions& opts) {
  const OpKind kind = OpKind::kHierarchicalNeighborAllReduce;
  RECORD_FUNCTION(profilingTitle(kind), std::vector<c10::IValue>());
  const Tensors inputs{input};
  Edges all = between;
  for (const int local : locals) {
    if (local != rank_) {
      all.sources.push_back({local, 1.0});
      all.destinations.push_back({local, 1.0});
    }
  }
  all.complete(Validate(engine_->members(), name(kind)), rank_);
  const DeviceCall call{onDevice(signatureAmongMachines(input, locals.size()), opts.match.tag),
                        profilingTitle(kind), inputs, all, opts.match};
  return exchanged(call, opts.async_op, [&](Notices& notices) {
    return accelerator_->hierarchicalNeighborAllreduce(input, locals, between, notices,
                                                       opts.async_op);
  });
}

}  // namespace bluefog
