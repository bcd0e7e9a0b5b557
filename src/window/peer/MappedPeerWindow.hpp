#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "window/Window.hpp"
#include "window/memory/PeerLiveness.hpp"
#include "window/memory/WindowMemory.hpp"
#include "window/peer/MappedMutex.hpp"
#include "window/peer/PeerWindow.hpp"

namespace bluefog {

// Of a rank of this host, whose memory this one writes and reads itself; of a device's memory as
// far as it could be opened.
class MappedPeerWindow final : public PeerWindow {
 public:
  MappedPeerWindow(std::shared_ptr<Window> own, int owner, const WindowPlace& place,
                   WindowMemory& memory, const PeerLiveness& liveness);
  // Of a window on a device.
  struct OnDevice {
    std::optional<Slot> slot;              // this rank's there, if it lies on the device
    const std::byte* tensor;               // null where it was not opened
    std::unique_ptr<PeerWindow> messages;  // for the rest
  };
  MappedPeerWindow(std::shared_ptr<Window> own, int owner, const WindowPart& part,
                   OnDevice on_device, const PeerLiveness& liveness);

  // After that was closed, and opened again elsewhere. Nobody may be at work on it.
  void reopened(std::optional<Slot> slot, const std::byte* tensor) {
    slot_ = slot;
    tensor_ = tensor;
  }

  bool isThere() const override { return part_.number() == own_->number(); }
  bool takesFromDevice() const override { return messages_ != nullptr && slot_; }
  PendingOp put(const SlotUpdate& what, Into into, const Issue& issue) override;
  PendingOp get(double weight, bool with_p, Engine::Who who) override;
  SlotMutex& mutex() override { return mutex_; }

 private:
  const std::shared_ptr<Window> own_;
  const int owner_;
  const WindowPart part_;
  std::optional<Slot> slot_;
  const std::byte* tensor_;
  const std::unique_ptr<PeerWindow> messages_;  // null where the window is on the host
  MappedMutex mutex_;
  std::mutex writing_;
};

}  // namespace bluefog
