// This file holds the methods that ProcessGroupComposed overrides for operations between neighbors
// and for windows.
#include <ATen/record_function.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "core/Interruption.hpp"
#include "process_group/device/FailedWork.hpp"
#include "process_group/device/ProcessGroupComposed.hpp"
#include "process_group/host/Signatures.hpp"

namespace bluefog {

using Tensors = std::vector<at::Tensor>;

namespace {

// Returns the signature of a call on the device. It differs from that of a call with CPU tensors,
// or with another tag, so that ranks which mix these up find a mismatch.
Signature onDevice(Signature signature, int64_t tag) {
  signature.where = Where::kDevice;
  signature.detail ^= static_cast<uint64_t>(tag);
  return signature;
}

}  // namespace

bool ProcessGroupComposed::isAnyOnDevice(const Tensors& tensors) const {
  return std::any_of(tensors.begin(), tensors.end(),
                     [this](const at::Tensor& tensor) { return isOnDevice(tensor); });
}

// The group's device is checked here, before the exchange, because the device's backend would
// refuse a tensor on another device on this rank alone.
Validate ProcessGroupComposed::validateOnDevice(const char* op, const Tensors& tensors) {
  checkProcess(op);
  const Validate validate(engine()->members(), op, accelerator_->type());
  TORCH_CHECK(!coalescing().isOn(), validate.who(),
              "an accelerator's backend has one batch at a time, and this is one itself; call it "
              "outside of startCoalescing() and endCoalescing() (which an exception inside of "
              "torch's context manager does not call)");
  const std::optional<at::Device> bound = getBoundDeviceId();
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK_VALUE(!isOnDevice(tensor) || !bound || tensor.device() == *bound, validate.who(),
                      "a tensor is on ", tensor.device(), ", and the group is bound to ", *bound,
                      " (init_process_group's device_id); move it there with .to()");
  }
  return validate;
}

// Once its notices are sent, an asynchronous call tells its failure by its Work, just as with CPU
// tensors. So a rank that begins several calls and waits then begins as many as the others. If the
// group's calls on the device are over, a call throws at once.
WorkPtr ProcessGroupComposed::exchange(const DeviceCall& call, bool async_op,
                                       const std::function<WorkPtr(Notices&)>& exchange) {
  noteIssued();
  try {
    return device_calls_->run(call, accelerator_->limit(groupsTimeout()), exchange);
  } catch (const Interruption&) {
    throw;
  } catch (...) {
    if (!async_op || call.match.op == nullptr) {
      throw;
    }
    return c10::make_intrusive<FailedWork>(rank_, language().raised(std::current_exception()));
  }
}

WorkPtr ProcessGroupComposed::averageOnDevice(OpKind kind, const Tensors& inputs,
                                              const Edges& edges, const MessageOptions& opts) {
  RECORD_FUNCTION(profilingTitle(kind), std::vector<c10::IValue>());
  const Validate validate = validateOnDevice(name(kind), inputs);
  for (const at::Tensor& input : inputs) {
    validate.summable(input);
  }
  validate.onOneDevice(inputs);
  const DeviceCall call{onDevice(signatureOfAll(kind, inputs), opts.match.tag),
                        profilingTitle(kind), inputs, edges, opts.match};
  return exchange(call, opts.async_op, [&](Notices& notices) {
    return accelerator_->neighborAllreduce(inputs, edges, notices, opts.async_op);
  });
}

WorkPtr ProcessGroupComposed::gatherOnDevice(OpKind kind, const at::Tensor& like,
                                             const Tensors& inputs, const Edges& edges,
                                             const GatherOptions& opts) {
  const char* title = opts.is_of_all ? "bluefog:allgather" : profilingTitle(kind);
  RECORD_FUNCTION(title, std::vector<c10::IValue>());
  Tensors all = inputs;
  all.push_back(like);
  const Validate validate = validateOnDevice(opts.is_of_all ? "allgather" : name(kind), all);
  for (const at::Tensor& tensor : all) {
    validate.rows(tensor);
    validate.sameRows(tensor, like);
  }
  validate.onOneDevice(all);
  validate.sameLength(inputs.size(), "the list", edges.destinations.size(), "out-neighbors");
  const Tensors logged{like};
  DeviceCall call{onDevice(signatureOfRows(kind, like), opts.match.tag), title, logged, edges,
                  opts.match};
  call.called = opts.is_of_all ? "allgather" : "";
  for (const at::Tensor& input : inputs) {
    call.rows.push_back(input.size(0));
  }
  call.needs_rows = true;
  return exchange(call, opts.async_op, [&](Notices& notices) {
    return accelerator_->neighborGather(like, inputs, edges, notices, opts.in_one, opts.async_op);
  });
}

WorkPtr ProcessGroupComposed::averageMachinesOnDevice(const at::Tensor& input,
                                                      const std::vector<int>& locals,
                                                      const Edges& between,
                                                      const MessageOptions& opts) {
  const OpKind kind = OpKind::kHierarchicalNeighborAllReduce;
  const Tensors inputs{input};
  const Validate validate = validateOnDevice(name(kind), inputs);
  validate.summable(input);
  checkMachine(validate, locals);
  RECORD_FUNCTION(profilingTitle(kind), std::vector<c10::IValue>());
  Edges all = between;
  for (const int local : locals) {
    if (local != rank_) {
      all.sources.push_back({local, 1.0});
      all.destinations.push_back({local, 1.0});
    }
  }
  all.complete(Validate(engine()->members(), name(kind)), rank_);
  const DeviceCall call{onDevice(signatureAmongMachines(input, locals.size()), opts.match.tag),
                        profilingTitle(kind), inputs, all, opts.match};
  return exchange(call, opts.async_op, [&](Notices& notices) {
    return accelerator_->hierarchicalNeighborAllreduce(input, locals, between, notices,
                                                       opts.async_op);
  });
}

// Calls on the device count under tag 0, whatever their names, because the device's backend matches
// them by their order.
WorkPtr ProcessGroupComposed::neighborAllreduce(OpKind kind, const Tensors& inputs,
                                                const Edges& edges, const MessageOptions& opts) {
  if (!isAnyOnDevice(inputs)) {
    return ProcessGroupBluefog::neighborAllreduce(kind, inputs, edges, opts);
  }
  return countingRefusals(kind, edges, opts.match, 0,
                          [&] { return averageOnDevice(kind, inputs, edges, opts); });
}

Tensors ProcessGroupComposed::neighborAllreduceNow(OpKind kind, const Tensors& inputs,
                                                   const Edges& edges, Match& match) {
  if (!isAnyOnDevice(inputs)) {
    return ProcessGroupBluefog::neighborAllreduceNow(kind, inputs, edges, match);
  }
  const WorkPtr work = neighborAllreduce(kind, inputs, edges, {match, false});
  work->wait();
  return work->result();
}

at::Tensor ProcessGroupComposed::neighborAllreduceNow(OpKind kind, const at::Tensor& input,
                                                      const Edges& edges, Match& match) {
  return isOnDevice(input) ? neighborAllreduceNow(kind, Tensors{input}, edges, match).front()
                           : ProcessGroupBluefog::neighborAllreduceNow(kind, input, edges, match);
}

WorkPtr ProcessGroupComposed::neighborGather(OpKind kind, const at::Tensor& like,
                                             const Tensors& inputs, const Edges& edges,
                                             const GatherOptions& opts) {
  if (!isOnDevice(like) && !isAnyOnDevice(inputs)) {
    return ProcessGroupBluefog::neighborGather(kind, like, inputs, edges, opts);
  }
  return countingRefusals(kind, edges, opts.match, 0,
                          [&] { return gatherOnDevice(kind, like, inputs, edges, opts); });
}

WorkPtr ProcessGroupComposed::hierarchicalNeighborAllreduce(const at::Tensor& input,
                                                            const std::vector<int>& locals,
                                                            const Edges& between,
                                                            const MessageOptions& opts) {
  if (!isOnDevice(input)) {
    return ProcessGroupBluefog::hierarchicalNeighborAllreduce(input, locals, between, opts);
  }
  return countingRefusals(OpKind::kHierarchicalNeighborAllReduce, between, opts.match, 0,
                          [&] { return averageMachinesOnDevice(input, locals, between, opts); });
}

// If the accelerator's tensors are on the CPU, all calls are counted as those on a device are.
void ProcessGroupComposed::countRefused(Counter counter) {
  if (accelerator_ != nullptr && accelerator_->type() == c10::kCPU) {
    counter.tag = 0;
  }
  ProcessGroupBluefog::countRefused(counter);
}

WindowResources ProcessGroupComposed::windowResources(const at::Tensor& tensor) {
  WindowResources resources = ProcessGroupBluefog::windowResources(tensor);
  return tensor.is_cpu() || !isOnDevice(tensor)
             ? resources
             : windows().onDevice(std::move(resources), accelerator_->heapOn(tensor.device()));
}

}  // namespace bluefog
