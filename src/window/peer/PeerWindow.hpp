#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/Error.hpp"
#include "transport/engine/Engine.hpp"
#include "window/Slot.hpp"
#include "window/SlotMutex.hpp"

namespace bluefog {

// A PendingOp is what is still under way of a call, or null if nothing is.
using PendingOp = std::shared_ptr<Op>;

inline constexpr const char* kNoSuchWindow = "has no such window any more";

// Returns the error for a window that a rank has freed. Its text begins with `who`, and `rank` is a
// global rank.
inline Error noSuchWindow(const std::string& who, int rank) {
  return {Cause::kMismatch, {rank}, who + "rank " + std::to_string(rank) + " " + kNoSuchWindow};
}

// A PeerWindow is how this rank reaches another rank's part of a window, one-sided: the other
// rank's program does nothing for it. Once a call has ended, and so has its PendingOp, its data is
// in place.
// Thread safety: any thread may call any method.
class PeerWindow {
 public:
  virtual ~PeerWindow() = default;

  enum class Into : uint8_t { kReplace, kAdd };
  struct Issue {
    Engine::Who who;             // who waits for what is under way, see Engine
    std::shared_ptr<void> kept;  // owns the data until that ends
    std::optional<std::chrono::milliseconds> timeout = {};  // other than the window's
  };
  // Returns false if the peer has freed the window.
  virtual bool isThere() const = 0;
  // Returns whether put() takes data from the Space of the window's tensor. Otherwise the data must
  // be in the host's memory.
  virtual bool takesFromDevice() const = 0;
  // Writes `what`, which must have the window's shape, to this rank's slot at the peer.
  virtual PendingOp put(const SlotUpdate& what, Into into, const Issue& issue) = 0;
  // Fetches the peer's tensor times `weight` into this rank's own slot for the peer, and also the
  // peer's p times `weight` if `with_p`.
  virtual PendingOp get(double weight, bool with_p, Engine::Who who) = 0;
  // Returns the mutex of this rank's slot at the peer.
  virtual SlotMutex& mutex() = 0;
};

}  // namespace bluefog
