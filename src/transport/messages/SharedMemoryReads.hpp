#pragma once

#include <cstddef>
#include <cstdint>

#include "core/Reduce.hpp"
#include "transport/messages/ControlPlane.hpp"
#include "transport/messages/MailboxState.hpp"
#include "transport/messages/ReceiveState.hpp"

namespace bluefog {

// SharedMemoryReads lets a receiver read a large message where it lies, in the heap of a sender on
// the same host. The sender offers the place in its announcement. When it may change the memory, it
// first ends the offers up to that message; a receiver reads as the reader of a sequence lock does,
// and looks after it has read whether the offer still held.
//
// Thread safety: any thread may call storesFor(); only the thread that drives the engine may call
// the other functions.
class SharedMemoryReads {
 public:
  SharedMemoryReads(MailboxState& state, ControlPlane& control)
      : state_(state), control_(control) {}

  // ---- receiver
  // Returns where an announced message lies in its sender's heap; null where it was not offered, or
  // cannot be read here. Throws Failure where the place is not in the heap.
  const std::byte* find(const ReceiveState& message);
  // Returns, after the bytes were read, whether they were what was sent.
  bool isStillOffered(const ReceiveState& message) const;
  // Completes a message that was read, and tells its sender.
  void finish(ReceiveState& message);

  // ---- sender
  // Returns how to write a result of that many bytes that may be offered next.
  Stores storesFor(size_t bytes) const;
  // Ends the offers to that rank up to the message of this id. To be called before their memory
  // changes; messages that are still wanted stream.
  void endOffers(int destination, uint64_t id);

 private:
  // Returns the peer's heap; null where it cannot be mapped here.
  const Mapping* heapOf(int peer);

  MailboxState& state_;
  ControlPlane& control_;
};

}  // namespace bluefog
