#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "window/peer/PeerWindow.hpp"

namespace bluefog {

// A RawPeer is how this rank reaches a rank's part of a raw window, one-sided: the other rank's
// program does nothing for it. Once a call has ended, and so has its PendingOp, it has taken
// effect. Calls take effect in the order in which they begin.
// Thread safety: any thread may call any method.
class RawPeer {
 public:
  virtual ~RawPeer() = default;

  // Both return nothing, and have no effect, if it is seen at once that the part is not open.
  // Writes bytes from position `at` of the peer's memory on. They must not exceed it.
  virtual std::optional<PendingOp> put(uint64_t at, ConstSpan data,
                                       const PeerWindow::Issue& issue) = 0;
  // Adds one to the number of this rank's signals at the peer, and wakes the peer.
  virtual std::optional<PendingOp> signal(const PeerWindow::Issue& issue) = 0;
};

}  // namespace bluefog
