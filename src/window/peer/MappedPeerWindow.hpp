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

// A MappedPeerWindow reaches the window part of a rank on this host, by reading and writing that
// rank's memory itself. Memory on a device is reached like that as far as it could be opened, and
// otherwise by messages. It shares ownership of this rank's Window; the memory and the liveness
// must outlive it.
// Thread safety: any thread may call any method but reopened().
class MappedPeerWindow final : public PeerWindow {
 public:
  // Reaches a window in the host's memory.
  MappedPeerWindow(std::shared_ptr<Window> own, int owner, const WindowPlace& place,
                   WindowMemory& memory, const PeerLiveness& liveness);
  // OnDevice says how a window on a device is reached.
  struct OnDevice {
    std::optional<Slot> slot;  // this rank's slot there, if its buffers lie on the device
    const std::byte* tensor;   // null if it could not be opened
    std::unique_ptr<PeerWindow> messages;  // reaches what could not be opened
  };
  // Reaches a window on a device.
  MappedPeerWindow(std::shared_ptr<Window> own, int owner, const WindowPart& part,
                   OnDevice on_device, const PeerLiveness& liveness);

  // Notes where the memory lies that was closed and has been opened again. No other call may be
  // under way.
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
  const std::unique_ptr<PeerWindow> messages_;  // null if the window is in the host's memory
  MappedMutex mutex_;
  std::mutex writing_;
};

}  // namespace bluefog
