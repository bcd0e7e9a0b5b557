#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

#include "process_group/Language.hpp"
#include "process_group/device/Notices.hpp"

namespace bluefog {

// A DeviceCalls runs the neighbor calls that a group makes with tensors of its accelerator. It runs
// one at a time, because the accelerator's backend matches by order what ranks exchange. It owns
// the DeviceFailure that ends all of them, which may outlive it.
// Thread safety: any thread may call any method.
class DeviceCalls {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  // The engine, the language and the log must outlive this object. `returns_when_done` says that
  // the backend has no streams, so that calls wait anyway. For `abort` see DeviceFailure.
  DeviceCalls(Engine& engine, const Language& language, FlightLog& log, bool returns_when_done,
              std::function<void()> abort);

  // Waits for the call's turn, and returns what `exchange` does, which must call tell() of the
  // notices. The timeout begins with the turn. Throws if the exchange fails, or if an earlier
  // failure has ended such calls.
  WorkPtr run(const DeviceCall& call, std::chrono::milliseconds timeout,
              const std::function<WorkPtr(Notices&)>& exchange);
  // Throws if a failure has ended such calls. `call` names in the error what was called.
  void check(std::string_view call) const;

 private:
  class CallTurn;

  // Ends such calls because this call has failed in the exchange, and throws. It must be called
  // while the exchange's exception is handled.
  [[noreturn]] void breakOff(const Notices& notices);

  Engine& engine_;
  const Language& language_;
  FlightLog& log_;
  const std::shared_ptr<DeviceFailure> failure_;
  const bool returns_when_done_;
  const bool checks_before_;
  std::timed_mutex turns_;              // held during a call
  std::atomic<std::thread::id> owner_;  // thread that has the turn
  Exchanges exchanges_;
};

}  // namespace bluefog
