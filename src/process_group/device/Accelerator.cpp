#include "process_group/device/Accelerator.hpp"

#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

#include "process_group/device/AcceleratorWork.hpp"

namespace bluefog {
namespace {

constexpr std::chrono::milliseconds kBetweenLooksForCtrlC{50};
constexpr auto kBetweenLooksAtIt = std::chrono::microseconds(100);

}  // namespace

Accelerator::Accelerator(c10::DeviceType type, c10::intrusive_ptr<c10d::Backend> backend,
                         std::shared_ptr<const Plugin> plugin)
    : type_(type), backend_(std::move(backend)), plugin_(std::move(plugin)) {
  TORCH_CHECK_VALUE(backend_ != nullptr, "[bluefog] an accelerator's backend is None");
}

c10::Stream Accelerator::streamOn(c10::Device device) {
  const auto known = streams_.find(device.index());
  if (known != streams_.end()) {
    return known->second;
  }
  const c10::impl::VirtualGuardImpl impl(type_);
  return streams_.emplace(device.index(), impl.getStreamFromGlobalPool(device)).first->second;
}

std::shared_ptr<DeviceHeap> Accelerator::heapOn(c10::Device device) {
  TORCH_CHECK(plugin_->api() != nullptr, "[bluefog] the tensor is on ", device,
              ", and there are no kernels for that: ", plugin_->reason(),
              "; make the window of tensor.cpu()");
  const std::lock_guard lock(heaps_mutex_);
  std::shared_ptr<DeviceHeap>& heap = heaps_[device.index()];
  if (heap == nullptr) {
    // The program's current device stays what it is, even if one of the engine's callbacks uses the
    // heap in a thread of the program.
    const Device::Around around = [device] {
      return std::shared_ptr<void>(std::make_shared<c10::DeviceGuard>(device));
    };
    heap = std::make_shared<DeviceHeap>(std::make_shared<Device>(plugin_, device.index(), around));
  }
  return heap;
}

// The limit is less than the backend's own timeout, because NCCL's backend ends the process when
// that is over. Not every backend tells its timeout.
std::chrono::milliseconds Accelerator::limit(std::chrono::milliseconds groups) const {
  if (type_ == c10::kCPU) {
    return groups;
  }
  try {
    return std::min(groups, backend_->getBackendOptions()->timeout * 19 / 20);
  } catch (const c10::Error&) {
    return groups;
  }
}

// The Works that a call waits for are aborted one by one, because gloo's abort() does not end them.
void Accelerator::abort() {
  {
    const std::lock_guard lock(waited_mutex_);
    is_aborted_ = true;
    for (const WorkPtr& work : waited_) {
      work->abort();
    }
  }
  backend_->abort();
}

void Accelerator::requireNotAborted() const {
  if (is_aborted_) {
    backend_->abort();  // ends what was made or begun since abort()
    throw std::runtime_error("the exchange was aborted");
  }
}

void Accelerator::await(c10::Device device, const Notices& notices) const {
  if (!notices.isWaitedFor() || type_ == c10::kCPU) {
    return;
  }
  const std::function<void()> check = notices.check();
  c10::Event done(type_);
  done.record(c10::impl::VirtualGuardImpl(type_).getStream(device));
  Deadline next_interrupt = Deadline::in(kBetweenLooksForCtrlC);
  while (!done.query()) {
    check();
    if (next_interrupt.passed()) {
      next_interrupt = Deadline::in(kBetweenLooksForCtrlC);
      notices.lookForInterruption();
    }
    std::this_thread::sleep_for(kBetweenLooksAtIt);
  }
  check();
}

// The outputs are made by the caller, so they belong to the stream that is current there. The
// memory that `issue` allocates for itself belongs to the stream in which it runs.
Accelerator::WorkPtr Accelerator::run(const Tensors& inputs, Tensors outputs,
                                      const Notices& notices, bool async_op,
                                      const std::function<void()>& issue) {
  const int rank = backend_->getRank();
  const c10::Device device = inputs.front().device();
  if (!async_op || type_ == c10::kCPU) {
    const c10::DeviceGuard guard(device);
    issue();
    await(device, notices);
    return c10::make_intrusive<AcceleratorWork>(rank, device, std::move(outputs), std::nullopt,
                                                notices.check());
  }
  const c10::impl::VirtualGuardImpl impl(type_);
  const c10::Stream own = streamOn(device);
  c10::Event ready(type_);
  ready.record(impl.getStream(device));
  ready.block(own);
  // This comes before issue(), because one that fails in the middle has put work into the stream,
  // too.
  for (const Tensors* tensors : {&inputs, &std::as_const(outputs)}) {
    for (const at::Tensor& tensor : *tensors) {
      impl.recordDataPtrOnStream(tensor.storage().data_ptr(), own);
    }
  }
  c10::Event done(type_);
  {
    const c10::StreamGuard guard(own);
    issue();
    done.record(own);
    await(device, notices);
  }
  return c10::make_intrusive<AcceleratorWork>(rank, device, std::move(outputs), std::move(done),
                                              notices.check());
}

}  // namespace bluefog
