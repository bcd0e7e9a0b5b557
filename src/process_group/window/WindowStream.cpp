#include "process_group/window/WindowStream.hpp"

#include <c10/core/DeviceGuard.h>

#include <utility>

#include "core/Error.hpp"
#include "process_group/window/WindowSlice.hpp"

namespace bluefog {
WindowStream::~WindowStream() {
  ends_ = true;
  if (process_.isForked()) {
    (void)worker_.release();  // its thread exists only in the parent
  }
}

void WindowStream::checkCapture(const char* op) const {
  const c10::impl::VirtualGuardImpl impl(context_.device.type());
  TORCH_CHECK(!context_.memory->isCapturing(impl.getStream(context_.device).native_handle()),
              context_.label.who(op),
              "calls of windows cannot be captured in a graph, since the host takes part in them");
}

void WindowStream::failLate(const char* op, const char* what) const {
  throw Error(
      Cause::kTimeout, {context_.label.members.global(context_.label.members.rank)},
      context_.label.who(op) + "timeout after " + inSeconds(context_.timeout) + "; " + what);
}

void WindowStream::await(const char* op, const StreamPoint& point, Deadline deadline,
                         const std::function<void()>& proceed) const {
  if (!point.await(deadline, proceed)) {
    failLate(op, "the device has not finished the work that was queued before the call");
  }
}

void WindowStream::catchUp(const char* op) {
  checkCapture(op);
  sayingWhoseCall(context_.label, op, [&] {
    if (!StreamPoint::isReached(context_.device)) {
      await(op, StreamPoint(context_.device), Deadline::in(context_.timeout),
            [&] { context_.proceed(op); });
    }
  });
  drain(op);
}

void WindowStream::begin(const char* op, std::function<void()> call,
                         std::function<void(std::exception_ptr)> fail) {
  checkCapture(op);
  const auto before = sayingWhoseCall(
      context_.label, op, [&] { return std::make_shared<StreamPoint>(context_.device); });
  const Deadline deadline = Deadline::in(context_.timeout);  // covers what is before the call
  worker_->post([this, op, before, deadline, call = std::move(call), fail = std::move(fail)] {
    try {
      const c10::DeviceGuard guard(context_.device);  // a new thread would use device 0's context
      context_.memory->ignoreCaptures();
      sayingWhoseCall(context_.label, op, [&] {
        await(op, *before, deadline, [&] {
          TORCH_CHECK(!ends_, context_.label.who(op),
                      "the window ended before the device reached the call");
        });
      });
      call();
    } catch (...) {
      fail(std::current_exception());
    }
  });
}

void WindowStream::drain(const char* op) {
  const Deadline deadline = Deadline::in(context_.timeout);
  const uint64_t given = worker_->given();
  while (!worker_->await(given, kSlice)) {
    if (deadline.passed()) {
      failLate(op, "calls that were begun before have not ended");
    }
    context_.proceed(op);
  }
}

}  // namespace bluefog
