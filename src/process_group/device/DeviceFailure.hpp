#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "process_group/device/FirstFailure.hpp"
#include "transport/engine/Engine.hpp"

namespace bluefog {

// Ends a group's calls on its accelerator at their first failure. Other ranks might wait there for
// this one for ever, so the failure that a rank finds, or hears of, aborts the backend and is told
// to all ranks of the group. Thread safety: any thread may call any method. The
// engine lives longer than what it calls back.
class DeviceFailure : public std::enable_shared_from_this<DeviceFailure> {
 public:
  // `abort` ends what the backend has under way, and may take its time.
  DeviceFailure(Engine& engine, std::function<void()> abort)
      : engine_(engine),
        first_(std::make_shared<FirstFailure>(engine.members().who())),
        abort_(std::move(abort)) {}

  // From the first call on this rank hears of other ranks' failures, and of their deaths.
  void listen();
  // Does nothing where there is one already, or the group ends. Does not wait for the backend.
  void set(const Failure& failure);
  // Whether it is set, or comes to be so in that time.
  bool isSetWithin(std::chrono::milliseconds limit) const;
  const std::shared_ptr<FirstFailure>& first() const { return first_; }

 private:
  void listenTo(int peer);
  void hear(const Op& ended, const std::string& told);
  void end(const Failure& failure);
  void tellAll(const Failure& failure);

  Engine& engine_;
  const std::shared_ptr<FirstFailure> first_;
  const std::function<void()> abort_;
  std::once_flag listens_;
};

}  // namespace bluefog
