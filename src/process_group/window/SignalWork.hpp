#pragma once

#include "process_group/window/RawRegistration.hpp"

#ifdef C10D_BACKEND_HAS_WINDOW

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <exception>
#include <memory>
#include <mutex>

#include "core/Deadline.hpp"

namespace bluefog {

// A SignalWork is c10d's handle on a wait for a signal. It takes the signal when somebody looks at
// it, in wait() or isCompleted(), and the signal is there. A wait that fails, or whose handle is
// dropped before, takes none. It keeps the registration.
// Thread safety: any thread may call any method.
class SignalWork final : public c10d::Work {
 public:
  SignalWork(std::shared_ptr<RawRegistration> registration, int from, Deadline deadline);
  ~SignalWork() override;

  bool isCompleted() override { return look(); }
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  void synchronize() override { wait(); }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;

 private:
  bool look();
  std::exception_ptr whyNever() const;
  void await(Deadline limit);
  void checkProcess() const;

  const std::shared_ptr<RawRegistration> registration_;
  const Deadline deadline_;
  const SignalQueue::Ticket ticket_;
  mutable std::mutex mutex_;
  bool has_ended_ = false;
  std::exception_ptr error_;
};

}  // namespace bluefog

#endif
