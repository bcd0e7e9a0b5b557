#include "process_group/device/ProcessGroupComposed.hpp"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <optional>
#include <typeinfo>
#include <utility>

#include "process_group/work/BatchWork.hpp"

namespace bluefog {
namespace {

using Tensors = std::vector<at::Tensor>;

// Devices notes the device of a call's first tensor, and a device of the others that differs from
// it.
struct Devices {
  std::optional<c10::Device> first;
  std::optional<c10::Device> other;

  void add(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      return;
    }
    if (!first) {
      first = tensor.device();
    } else if (tensor.device() != *first) {
      other = tensor.device();
    }
  }
  template <class List>
  void add(const std::vector<List>& list) {
    for (const List& each : list) {
      add(each);
    }
  }
};

// Returns options for a new backend on the device, made of those of the parent's backend in the way
// in which torch does it. The new backend may keep them.
c10::intrusive_ptr<c10d::Backend::Options> optionsFor(
    c10d::Backend& backend, const c10::intrusive_ptr<c10d::Backend::Options>& given) {
  auto options = backend.getBackendOptions();
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  // A copy by a class that does not override clone() lacks what that class adds. Torch shares the
  // options then, too.
  if (auto copy = options->clone(); typeid(*copy) == typeid(*options)) {
    options = std::move(copy);
  }
#endif
  options->timeout = given->timeout;
  options->group_name = given->group_name;
  options->group_desc = given->group_desc;
  options->global_ranks_in_group = given->global_ranks_in_group;
  return options;
}

}  // namespace

template <class... Lists>
bool ProcessGroupComposed::isForDevice(const char* op, const Lists&... tensors) const {
  if (accelerator() == nullptr) {
    return false;
  }
  Devices devices;
  (devices.add(tensors), ...);
  TORCH_CHECK_VALUE(!devices.other, who(op),
                    "tensors of one call must be on one device; here are some on ", *devices.first,
                    " and some on ", *devices.other);
  const bool goes = devices.first && devices.first->type() == accelerator()->type();
  if (goes) {
    device_calls_->check(op);
  }
  return goes;
}

c10d::Backend& ProcessGroupComposed::deviceBackend() {
  c10d::Backend& backend = *this->backend();
  std::call_once(told_, [&] {
    backend.setGroupDesc(getGroupDesc());
    // Since torch 2.15 a program may bind a group to a CPU.
    if (const auto device = getBoundDeviceId(); !device || isOfAccelerator(*device)) {
      backend.setBoundDeviceId(device);
    }
  });
  if (coalescing().opensOnDevice()) {
    backend.startCoalescing();
  }
  return backend;
}

void ProcessGroupComposed::setAccelerator(std::shared_ptr<Accelerator> accelerator) {
  accelerator_ = std::move(accelerator);
  device_calls_ = std::make_unique<DeviceCalls>(*engine(), language(), flightLog(),
                                                accelerator_->type() == c10::kCPU,
                                                [of = accelerator_] { of->abort(); });
}

void ProcessGroupComposed::setTimeout(std::chrono::milliseconds timeout) {
  ProcessGroupBluefog::setTimeout(timeout);
  backend()->setTimeout(timeout);
}

void ProcessGroupComposed::setGroupUid(const std::string& uid) {
  ProcessGroupBluefog::setGroupUid(uid);
  backend()->setGroupUid(uid);
}

WorkPtr ProcessGroupComposed::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  return isForDevice("allreduce", tensors) ? deviceBackend().allreduce(tensors, opts)
                                           : ProcessGroupBluefog::allreduce(tensors, opts);
}

WorkPtr ProcessGroupComposed::allreduce_sparse(Tensors& tensors,
                                               const c10d::AllreduceOptions& opts) {
  return isForDevice("allreduce_sparse", tensors)
             ? deviceBackend().allreduce_sparse(tensors, opts)
             : ProcessGroupBluefog::allreduce_sparse(tensors, opts);
}

WorkPtr ProcessGroupComposed::allreduce_coalesced(Tensors& tensors,
                                                  const c10d::AllreduceCoalescedOptions& opts) {
  return isForDevice("allreduce_coalesced", tensors)
             ? deviceBackend().allreduce_coalesced(tensors, opts)
             : ProcessGroupBluefog::allreduce_coalesced(tensors, opts);
}

WorkPtr ProcessGroupComposed::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  return isForDevice("broadcast", tensors) ? deviceBackend().broadcast(tensors, opts)
                                           : ProcessGroupBluefog::broadcast(tensors, opts);
}

WorkPtr ProcessGroupComposed::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  return isForDevice("reduce", tensors) ? deviceBackend().reduce(tensors, opts)
                                        : ProcessGroupBluefog::reduce(tensors, opts);
}

WorkPtr ProcessGroupComposed::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                        const c10d::AllgatherOptions& opts) {
  return isForDevice("allgather", outputs, inputs)
             ? deviceBackend().allgather(outputs, inputs, opts)
             : ProcessGroupBluefog::allgather(outputs, inputs, opts);
}

WorkPtr ProcessGroupComposed::_allgather_base(at::Tensor& output, at::Tensor& input,
                                              const c10d::AllgatherOptions& opts) {
  return isForDevice("all_gather_into_tensor", output, input)
             ? deviceBackend()._allgather_base(output, input, opts)
             : ProcessGroupBluefog::_allgather_base(output, input, opts);
}

WorkPtr ProcessGroupComposed::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                  const c10d::AllgatherOptions& opts) {
  return isForDevice("allgather_coalesced", outputs, inputs)
             ? deviceBackend().allgather_coalesced(outputs, inputs, opts)
             : ProcessGroupBluefog::allgather_coalesced(outputs, inputs, opts);
}

WorkPtr ProcessGroupComposed::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                              const c10d::AllgatherOptions& opts) {
  return isForDevice("allgather_into_tensor_coalesced", outputs, inputs)
             ? deviceBackend().allgather_into_tensor_coalesced(outputs, inputs, opts)
             : ProcessGroupBluefog::allgather_into_tensor_coalesced(outputs, inputs, opts);
}

WorkPtr ProcessGroupComposed::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                     const c10d::GatherOptions& opts) {
  return isForDevice("gather", outputs, inputs)
             ? deviceBackend().gather(outputs, inputs, opts)
             : ProcessGroupBluefog::gather(outputs, inputs, opts);
}

#ifdef C10D_BACKEND_HAS_HOOKS
WorkPtr ProcessGroupComposed::gather_single(at::Tensor& output, at::Tensor& input,
                                            const c10d::GatherOptions& opts) {
  return isForDevice("gather_single", output, input)
             ? deviceBackend().gather_single(output, input, opts)
             : ProcessGroupBluefog::gather_single(output, input, opts);
}
#endif

WorkPtr ProcessGroupComposed::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                      const c10d::ScatterOptions& opts) {
  return isForDevice("scatter", outputs, inputs)
             ? deviceBackend().scatter(outputs, inputs, opts)
             : ProcessGroupBluefog::scatter(outputs, inputs, opts);
}

WorkPtr ProcessGroupComposed::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                             const c10d::ReduceScatterOptions& opts) {
  return isForDevice("reduce_scatter", outputs, inputs)
             ? deviceBackend().reduce_scatter(outputs, inputs, opts)
             : ProcessGroupBluefog::reduce_scatter(outputs, inputs, opts);
}

WorkPtr ProcessGroupComposed::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                   const c10d::ReduceScatterOptions& opts) {
  return isForDevice("reduce_scatter_tensor", output, input)
             ? deviceBackend()._reduce_scatter_base(output, input, opts)
             : ProcessGroupBluefog::_reduce_scatter_base(output, input, opts);
}

WorkPtr ProcessGroupComposed::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) {
  return isForDevice("reduce_scatter_tensor_coalesced", outputs, inputs)
             ? deviceBackend().reduce_scatter_tensor_coalesced(outputs, inputs, opts)
             : ProcessGroupBluefog::reduce_scatter_tensor_coalesced(outputs, inputs, opts);
}

WorkPtr ProcessGroupComposed::alltoall(Tensors& outputs, Tensors& inputs,
                                       const c10d::AllToAllOptions& opts) {
  return isForDevice("alltoall", outputs, inputs)
             ? deviceBackend().alltoall(outputs, inputs, opts)
             : ProcessGroupBluefog::alltoall(outputs, inputs, opts);
}

WorkPtr ProcessGroupComposed::alltoall_base(at::Tensor& output, at::Tensor& input,
                                            std::vector<int64_t>& output_splits,
                                            std::vector<int64_t>& input_splits,
                                            const c10d::AllToAllOptions& opts) {
  return isForDevice("alltoall_base", output, input)
             ? deviceBackend().alltoall_base(output, input, output_splits, input_splits, opts)
             : ProcessGroupBluefog::alltoall_base(output, input, output_splits, input_splits, opts);
}

WorkPtr ProcessGroupComposed::barrier(const c10d::BarrierOptions& opts) {
  return accelerator() != nullptr && opts.device && opts.device->type() == accelerator()->type()
             ? deviceBackend().barrier(opts)
             : ProcessGroupBluefog::barrier(opts);
}

WorkPtr ProcessGroupComposed::send(Tensors& tensors, int destination, int tag) {
  return isForDevice("send", tensors) ? deviceBackend().send(tensors, destination, tag)
                                      : ProcessGroupBluefog::send(tensors, destination, tag);
}

WorkPtr ProcessGroupComposed::recv(Tensors& tensors, int source, int tag) {
  return isForDevice("recv", tensors) ? deviceBackend().recv(tensors, source, tag)
                                      : ProcessGroupBluefog::recv(tensors, source, tag);
}

WorkPtr ProcessGroupComposed::recvAnysource(Tensors& tensors, int tag) {
  return isForDevice("recv from any source", tensors)
             ? deviceBackend().recvAnysource(tensors, tag)
             : ProcessGroupBluefog::recvAnysource(tensors, tag);
}

// A batch of which everything went to the device has the Work of the device's backend.
WorkPtr ProcessGroupComposed::endCoalescing() {
  Coalescing::Batch batch = endBatch();
  if (!batch.is_open_on_device) {
    return c10::make_intrusive<BatchWork>(rank_, std::move(batch.works));
  }
  WorkPtr work = backend()->endCoalescing();
  if (batch.works.empty()) {
    return work;
  }
  if (work != nullptr) {
    batch.works.push_back(std::move(work));
  }
  return c10::make_intrusive<BatchWork>(rank_, std::move(batch.works));
}

c10::intrusive_ptr<ProcessGroupBluefog> ProcessGroupComposed::sibling(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    c10::intrusive_ptr<bluefog::Options> options) const {
  return c10::make_intrusive<ProcessGroupComposed>(store, rank, size, std::move(options),
                                                   language());
}

// The device's backend is split on all ranks, because it may need those that are left out, too.
c10::intrusive_ptr<c10d::Backend> ProcessGroupComposed::splitIn(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<c10d::Backend::Options>& opts) {
  auto part = ProcessGroupBluefog::splitIn(store, ranks, opts);
  auto inner = deviceBackend().split(c10::make_intrusive<c10d::PrefixStore>("accelerator", store),
                                     ranks, optionsFor(deviceBackend(), opts));
  return composed(std::move(part), std::move(inner));
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupComposed::merge(
    const c10::intrusive_ptr<c10d::Store>& store,
    const c10::intrusive_ptr<c10d::Backend::Options>& opts, const int& rank, const int& size) {
  auto whole = ProcessGroupBluefog::merge(store, opts, rank, size);
  auto inner = deviceBackend().merge(c10::make_intrusive<c10d::PrefixStore>("accelerator", store),
                                     optionsFor(deviceBackend(), opts), rank, size);
  return composed(std::move(whole), std::move(inner));
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupComposed::composed(
    c10::intrusive_ptr<c10d::Backend> group, c10::intrusive_ptr<c10d::Backend> inner) const {
  if (group != nullptr) {
    static_cast<ProcessGroupComposed&>(*group).setAccelerator(
        accelerator()->sibling(std::move(inner)));
  }
  return group;
}

void ProcessGroupComposed::eagerConnectSingleDevice(at::Device device) {
  if (isOfAccelerator(device)) {
    deviceBackend().eagerConnectSingleDevice(device);
  }
}

// The hook is kept in this object, too, because torch asks it whether there is one.
void ProcessGroupComposed::registerOnCompletionHook(
    std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) {
  onCompletionHook_ = hook;
  backend()->registerOnCompletionHook(std::move(hook));
}

void ProcessGroupComposed::enableCollectivesTiming() {
  backend()->enableCollectivesTiming();
}

void ProcessGroupComposed::abort() {
  if (reachesDevice()) {
    backend()->abort();
  }
  ProcessGroupBluefog::abort();
}

void ProcessGroupComposed::shutdown() {
  if (reachesDevice()) {
    backend()->shutdown();
  }
  ProcessGroupBluefog::shutdown();
}

}  // namespace bluefog
