#include "process_group/window/RawPutWork.hpp"

#ifdef C10D_BACKEND_HAS_WINDOW

#include <utility>

#include "process_group/window/WindowWork.hpp"

namespace bluefog {

RawPutWork::RawPutWork(std::shared_ptr<Engine> engine, PendingOp pending)
    : c10d::Work(engine->members().rank, c10d::OpType::UNKNOWN),
      engine_(std::move(engine)),
      pending_(std::move(pending)) {}

bool RawPutWork::isSuccess() const {
  return pending_ == nullptr || (pending_->hasEnded() && !pending_->error);
}

std::exception_ptr RawPutWork::exception() const {
  return pending_ != nullptr && pending_->hasEnded() ? pending_->error : nullptr;
}

bool RawPutWork::wait(std::chrono::milliseconds timeout) {
  if (pending_ == nullptr) {
    return true;
  }
  const Membership& members = engine_->members();
  if (engine_->isForked()) {
    throwForked(members.who() + " Window.put: ");
  }
  const Deadline limit = timeout.count() > 0 ? Deadline::in(timeout) : Deadline::never();
  if (!engine_->wait(*pending_, limit)) {
    throw Error(Cause::kTimeout, {},
                prefix(members, *pending_) + "timeout of wait() after " + inSeconds(timeout) +
                    "; the operation goes on until its own deadline");
  }
  if (pending_->error) {
    std::rethrow_exception(pending_->error);
  }
  return true;
}

}  // namespace bluefog

#endif
