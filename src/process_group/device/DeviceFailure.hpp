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

// A DeviceFailure ends a group's calls on its accelerator at their first failure. Other ranks might
// wait there for this rank for ever. So when a rank finds a failure, or hears of one, it aborts the
// backend and tells all ranks of the group. It owns the FirstFailure together with the calls'
// Works. The operations that it posts keep it, and the engine must live as long as they do.
// Thread safety: any thread may call any method.
class DeviceFailure : public std::enable_shared_from_this<DeviceFailure> {
 public:
  // `abort` ends what the backend has under way. It may take long.
  DeviceFailure(Engine& engine, std::function<void()> abort)
      : engine_(engine),
        first_(std::make_shared<FirstFailure>(engine.members().who())),
        abort_(std::move(abort)) {}

  // Has this rank hear of the failures and the deaths of other ranks from now on. Only the first
  // call does something.
  void listen();
  // Records the failure, tells the other ranks, and has the backend aborted, for which it does not
  // wait. Does nothing if there is a failure already, or if the group ends.
  void set(const Failure& failure);
  // Returns whether there is a failure. Waits up to `limit` for one.
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
