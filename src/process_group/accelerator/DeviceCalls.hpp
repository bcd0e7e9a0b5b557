#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "process_group/Frontend.hpp"
#include "process_group/accelerator/Notices.hpp"

namespace bluefog {

// The calls of neighbors that a group makes with tensors of its accelerator: one at a time, since
// the backend matches what ranks exchange by its order. Thread safety: any thread may call any
// method.
class DeviceCalls {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  // Which live as long as this. `abort`: see DeviceFailure.
  DeviceCalls(Engine& engine, const Frontend& frontend, FlightLog& log,
              std::function<void()> abort);

  // What `exchange` gives, which is to have its notices told. The call's time begins with its turn.
  WorkPtr run(DeviceCall& call, std::chrono::milliseconds timeout,
              const std::function<WorkPtr(Notices&)>& exchange);
  // Throws where they are over.
  void check(const std::string& call) const;

 private:
  class Turn;

  [[noreturn]] void breakOff(const Notices& notices, const DeviceCall& call);
  void raiseTheReason(const Notices& notices) const;
  // Throws what `check` does, as the frontend raises it.
  void raising(const std::function<void()>& check) const;

  Engine& engine_;
  const Frontend& frontend_;
  FlightLog& log_;
  const std::shared_ptr<DeviceFailure> failure_;
  const bool checks_before_;
  std::timed_mutex turns_;              // of the calls, and of all below
  std::atomic<std::thread::id> owner_;  // of the turn
  Exchanges exchanges_;
};

}  // namespace bluefog
