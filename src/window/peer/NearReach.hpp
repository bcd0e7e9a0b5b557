#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "window/Window.hpp"
#include "window/memory/Grounds.hpp"
#include "window/memory/Lives.hpp"
#include "window/peer/NearMutex.hpp"
#include "window/peer/Reach.hpp"

namespace bluefog {

// Of a rank of this host, whose memory this one writes and reads itself; of a device's memory as
// far as it could be opened.
class NearReach final : public Reach {
 public:
  NearReach(std::shared_ptr<Window> own, int owner, const WindowPlace& place, Grounds& grounds,
            const Lives& lives);
  // Of a window on a device.
  struct OnDevice {
    std::optional<Slot> slot;         // this rank's there, if it lies on the device
    const std::byte* tensor;          // null where it was not opened
    std::unique_ptr<Reach> messages;  // for the rest
  };
  NearReach(std::shared_ptr<Window> own, int owner, const WindowPart& part, OnDevice on_device,
            const Lives& lives);

  // After that was closed, and opened again elsewhere. Nobody may be at work on it.
  void reopened(std::optional<Slot> slot, const std::byte* tensor) {
    slot_ = slot;
    tensor_ = tensor;
  }

  bool isThere() const override { return part_.number() == own_->number(); }
  bool takesFromDevice() const override { return messages_ != nullptr && slot_; }
  Rest put(const Contribution& what, Into into, const Manner& manner) override;
  Rest get(double weight, bool with_p, Engine::Who who) override;
  SlotMutex& mutex() override { return mutex_; }

 private:
  const std::shared_ptr<Window> own_;
  const int owner_;
  const WindowPart part_;
  std::optional<Slot> slot_;
  const std::byte* tensor_;
  const std::unique_ptr<Reach> messages_;  // null where the window is on the host
  NearMutex mutex_;
  std::mutex writing_;
};

}  // namespace bluefog
