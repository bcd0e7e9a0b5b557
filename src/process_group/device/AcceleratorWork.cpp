#include "process_group/device/AcceleratorWork.hpp"

#include <ATen/core/ivalue.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <thread>
#include <utility>

#include "core/Deadline.hpp"
#include "core/Error.hpp"

namespace bluefog {
namespace {

constexpr auto kBetweenQueries = std::chrono::milliseconds(1);

}  // namespace

AcceleratorWork::AcceleratorWork(int rank, c10::Device device, std::vector<at::Tensor> outputs,
                                 std::optional<c10::Event> done, std::function<void()> check)
    : c10d::Work(rank, c10d::OpType::UNKNOWN),
      device_(device),
      outputs_(std::move(outputs)),
      done_(std::move(done)),
      check_(std::move(check)) {}

bool AcceleratorWork::isCompleted() {
  return !done_ || done_->query();
}

void AcceleratorWork::synchronize() {
  if (done_) {
    done_->block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }
}

bool AcceleratorWork::wait(std::chrono::milliseconds timeout) {
  check_();
  synchronize();
  if (timeout.count() > 0) {
    const Deadline limit = Deadline::in(timeout);
    while (!isCompleted()) {
      check_();
      if (limit.passed()) {
        throw Error(Cause::kTimeout, {},
                    "[bluefog] rank " + std::to_string(rank_) + ": timeout of wait() after " +
                        std::to_string(timeout.count()) +
                        " ms; the operation goes on in its stream");
      }
      std::this_thread::sleep_for(kBetweenQueries);
    }
  }
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> AcceleratorWork::getFuture() {
  const std::lock_guard lock(mutex_);
  if (!future_) {
    std::vector<c10::Device> devices;
    c10::OptionalStreamGuard guard;
    if (done_) {
      devices.push_back(device_);
      const c10::impl::VirtualGuardImpl impl(device_.type());
      const c10::Stream stream = impl.getStreamFromGlobalPool(device_);
      done_->block(stream);
      guard.reset_stream(stream);
    }
    future_ = c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()), std::move(devices));
    future_->markCompleted(c10::IValue(outputs_));
  }
  return future_;
}

}  // namespace bluefog
