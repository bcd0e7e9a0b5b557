#pragma once

#include "process_group/Features.hpp"

#ifdef C10D_BACKEND_HAS_WINDOW

#include <chrono>
#include <exception>
#include <memory>
#include <string>

#include "transport/engine/Engine.hpp"
#include "window/peer/PeerWindow.hpp"

namespace bluefog {

// A RawPutWork is c10d's handle on a put or a signal of a RawWindow. It keeps the engine.
// Thread safety: any thread may call any method.
class RawPutWork final : public c10d::Work {
 public:
  // `pending` is null if the call has taken effect already.
  RawPutWork(std::shared_ptr<Engine> engine, PendingOp pending);

  bool isCompleted() override { return pending_ == nullptr || pending_->hasEnded(); }
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  void synchronize() override { wait(); }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;

 private:
  const std::shared_ptr<Engine> engine_;
  const PendingOp pending_;
};

}  // namespace bluefog

#endif
