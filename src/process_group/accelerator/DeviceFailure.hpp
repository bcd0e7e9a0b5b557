#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "transport/Engine.hpp"

namespace bluefog {

// Why no call of a group reaches its accelerator any more, once one has failed. What other ranks
// have begun there might wait for this one for ever, so the first failure that a rank finds, or
// hears of, aborts the backend and is told to all ranks of the group. Thread safety: any thread may
// call any method, but that the engine has to live as long as listen()'s effect.
class DeviceFailure : public std::enable_shared_from_this<DeviceFailure> {
 public:
  // `abort` ends what the backend has under way, and may take its time.
  DeviceFailure(Engine& engine, std::function<void()> abort)
      : engine_(engine), who_(engine.members().who()), abort_(std::move(abort)) {}

  // From the first call on this rank hears of other ranks' failures, and of their deaths.
  void listen();
  // Does nothing where there is one already, or the group ends.
  void set(const Failure& failure);
  // The same for a thread that must not wait for the backend.
  void setSoon(const Failure& failure);
  // Where it is set, or comes to be so in that time.
  bool isSetWithin(std::chrono::milliseconds limit) const;
  std::optional<Failure> get() const;
  // Throws it, if it is set. `call`: what raises it, as in "neighbor_allreduce".
  void check(const std::string& call) const;
  // What its text says to do.
  static std::string advice();

 private:
  bool isFirst(const Failure& failure);
  void listenTo(int peer);
  void hear(const Op& ended, const std::string& told);
  void end(const Failure& failure);
  void tell(int peer, const Failure& failure);

  Engine& engine_;
  const std::string who_;
  const std::function<void()> abort_;
  std::once_flag listens_;
  mutable std::mutex mutex_;
  std::optional<Failure> failure_;
};

}  // namespace bluefog
