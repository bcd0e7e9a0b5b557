#pragma once

#include <algorithm>
#include <cstddef>

#include "transport/messages/ControlPlane.hpp"
#include "transport/messages/MailboxState.hpp"
#include "transport/messages/ReceiveState.hpp"

namespace bluefog {

// FlowControl bounds the eager messages that a receiver has to keep. A sender has a credit of bytes
// for each receiver. An eager message is charged to the credit; the receiver gives the charge back
// when an operation has taken the message, in steps of many messages.
//
// Thread safety: only the thread that drives the engine may use it.
class FlowControl {
 public:
  FlowControl(MailboxState& state, ControlPlane& control) : state_(state), control_(control) {}

  // Returns the bytes that an eager message of that length is charged with.
  static size_t charge(size_t bytes) { return bytes + kBookkeeping; }
  // Returns what a message that has arrived was charged with: nothing, unless it came eagerly.
  static size_t charge(const ReceiveState& message) {
    return message.stage == ReceiveState::Stage::kBuffered ? charge(message.payload.size()) : 0;
  }

  // ---- sender
  bool hasCredit(int destination, size_t bytes) const {
    return state_.lane(destination).outstanding + charge(bytes) <= kCredit;
  }
  void chargeSend(int destination, size_t bytes) {
    state_.lane(destination).outstanding += charge(bytes);
  }
  // Takes back a charge that the receiver gives back.
  void replenish(int destination, size_t charged) {
    size_t& outstanding = state_.lane(destination).outstanding;
    outstanding -= std::min(charged, outstanding);
  }

  // ---- receiver
  // Gives the charge back to the sender, once enough has come together.
  void giveBack(int source, size_t charged);
  // Returns false where the unexpected messages of that sender exceed all credit. The next frame
  // then stays in the lane.
  bool mayQueue(int source) const {
    return state_.lane(source).unexpected_bytes <= kMostUnexpected;
  }
  // Notes that a message has entered the unexpected queue.
  void noteQueued(int source, const ReceiveState& message) {
    state_.lane(source).unexpected_bytes += charge(message);
  }
  // Notes that a message has left the unexpected queue, and gives its charge back.
  void noteUnqueued(const ReceiveState& message) {
    state_.lane(message.source).unexpected_bytes -= charge(message);
    giveBack(message.source, charge(message));
  }

 private:
  static constexpr size_t kCredit = size_t{32} << 20;
  // The receiver gives charges back when they come to this.
  static constexpr size_t kCreditStep = size_t{8} << 20;
  // A sender that keeps to its credit never comes to that.
  static constexpr size_t kMostUnexpected = size_t{64} << 20;
  // The bytes that a receiver needs to remember a message.
  static constexpr size_t kBookkeeping = 512;

  MailboxState& state_;
  ControlPlane& control_;
};

}  // namespace bluefog
