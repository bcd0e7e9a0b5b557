#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/Error.hpp"
#include "transport/engine/Engine.hpp"
#include "window/Slot.hpp"
#include "window/SlotMutex.hpp"

namespace bluefog {

// What is still under way of a call; null where nothing is.
using PendingOp = std::shared_ptr<Op>;

inline constexpr const char* kNoSuchWindow = "has no such window any more";

// `rank`: global. It begins with `who`.
inline Error noSuchWindow(const std::string& who, int rank) {
  return {Cause::kMismatch, {rank}, who + "rank " + std::to_string(rank) + " " + kNoSuchWindow};
}

// How a rank reaches another one's part of a window. What has ended is in its place, and the other
// rank's program had nothing to do for it. Any thread may use it.
class PeerWindow {
 public:
  virtual ~PeerWindow() = default;

  enum class Into : uint8_t { kReplace, kAdd };
  struct Issue {
    Engine::Who who;             // waits for what is under way
    std::shared_ptr<void> kept;  // owns the data until that ends
  };
  // False where that rank has freed it.
  virtual bool isThere() const = 0;
  // Whether what is put lies where the window's tensor does; otherwise in the host's memory.
  virtual bool takesFromDevice() const = 0;
  // Into this rank's slot there. `what` is of the window's shape.
  virtual PendingOp put(const SlotUpdate& what, Into into, const Issue& issue) = 0;
  // That rank's tensor, and p where it counts, times `weight`, into this rank's own slot for it.
  virtual PendingOp get(double weight, bool with_p, Engine::Who who) = 0;
  // Of this rank's slot there.
  virtual SlotMutex& mutex() = 0;
};

}  // namespace bluefog
