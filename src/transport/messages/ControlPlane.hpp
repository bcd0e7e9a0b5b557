#pragma once

#include <cstdint>
#include <optional>

#include "transport/messages/DeadlockNotice.hpp"
#include "transport/messages/MailboxState.hpp"

namespace bluefog {

// The ControlPlane moves the control messages of all lanes. They never wait behind data, which runs
// in other rings.
//
// Thread safety: only the thread that drives the engine may use it.
class ControlPlane {
 public:
  explicit ControlPlane(MailboxState& state) : state_(state) {}

  // Sends the message at once where the ring has room, and otherwise by a later flush().
  void send(int peer, const ControlMessage& control);
  // Tells the peer that this rank's operation ended before the message of that id was complete.
  // Does nothing once this rank has fallen silent.
  void cancel(int peer, uint64_t id, ControlMessage::ControlKind how, const CancelReason& why);
  // Sends what found no room before. Returns whether anything was sent.
  bool flush(int peer);
  // Returns the next control message from the peer, if there is one. Throws Failure where the peer
  // has damaged the ring.
  std::optional<ControlMessage> take(int peer);

  // Returns whether send() has left something for flush().
  bool isOwedTo(int peer) const { return state_.lane(peer).control.hasQueued(); }
  // Returns whether any peer has sent a message that was not taken.
  bool hasIncoming() const;

  void sendDeadlockNotice(int peer, const DeadlockNotice& notice);
  // Returns the peer's last notice, once, unless a message has come from it since.
  std::optional<DeadlockNotice> takeDeadlockNotice(int peer);

 private:
  MailboxState& state_;
};

}  // namespace bluefog
