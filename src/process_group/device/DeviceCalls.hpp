#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

#include "process_group/LanguageHooks.hpp"
#include "process_group/device/Notices.hpp"

namespace bluefog {

// The calls of neighbors that a group makes with tensors of its accelerator: one at a time, since
// the backend matches what ranks exchange by its order. Thread safety: any thread may call any
// method.
class DeviceCalls {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  // The engine, the hooks and the log live longer than this. `returns_when_done`: the backend
  // has no streams, so that calls wait anyway. `abort`: see DeviceFailure.
  DeviceCalls(Engine& engine, const LanguageHooks& hooks, FlightLog& log, bool returns_when_done,
              std::function<void()> abort);

  // Returns what `exchange` gives, which is to have its notices told. The call's time begins with
  // its turn.
  WorkPtr run(const DeviceCall& call, std::chrono::milliseconds timeout,
              const std::function<WorkPtr(Notices&)>& exchange);
  // Throws where they are over.
  void check(std::string_view call) const;

 private:
  class Turn;

  [[noreturn]] void breakOff(const Notices& notices);

  Engine& engine_;
  const LanguageHooks& hooks_;
  FlightLog& log_;
  const std::shared_ptr<DeviceFailure> failure_;
  const bool returns_when_done_;
  const bool checks_before_;
  std::timed_mutex turns_;              // of the calls, and of all below
  std::atomic<std::thread::id> owner_;  // of the turn
  Exchanges exchanges_;
};

}  // namespace bluefog
