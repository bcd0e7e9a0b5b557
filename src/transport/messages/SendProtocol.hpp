#pragma once

#include <cstddef>
#include <cstdint>

#include "core/Spans.hpp"
#include "transport/messages/ControlPlane.hpp"
#include "transport/messages/FlowControl.hpp"
#include "transport/messages/MailboxState.hpp"
#include "transport/messages/PostedSend.hpp"
#include "transport/messages/SendConditions.hpp"
#include "transport/messages/SharedMemoryReads.hpp"
#include "transport/operations/MessageOp.hpp"

namespace bluefog {

// The SendProtocol sends messages to peers. A small message goes eagerly, in one frame. A large one
// is announced (rendezvous): when its receiver has accepted it, it streams in frames until the
// receiver wants no more, or the receiver reads it in this rank's heap. So a lane never holds data
// that nobody takes.
//
// Thread safety: only the thread that drives the engine may use it.
class SendProtocol {
 public:
  SendProtocol(MailboxState& state, ControlPlane& control, FlowControl& flow,
               SharedMemoryReads& reads)
      : state_(state), control_(control), flow_(flow), reads_(reads) {}

  // ---- what tasks await: see SendConditions.hpp
  SendTurn turn(const PostedSend& message) { return {state_, message}; }
  ReceiverAnswer answer(const PostedSend& message, const MessageOp& op) {
    return {state_, message, op};
  }
  LaneRoom room(const PostedSend& message) { return {state_, message}; }

  // ---- what tasks send, one frame each, after turn() or room()
  // Returns whether a message is small and within the receiver's credit. Otherwise it is announced:
  // without that limit, messages that the receiver does not expect yet would pile up there, and at
  // last stop the lane.
  bool fitsEager(const Outgoing& message) const;
  void sendEager(PostedSend& message, const Outgoing& from);
  void announce(PostedSend& message, const Outgoing& from);
  // Sends the bytes from `at` on that fit a frame. Returns how many.
  size_t stream(PostedSend& message, const Outgoing& from, size_t at);
  // Returns why a message has failed that its receiver does not want any more.
  Failure withdrawn(const PostedSend& message) const;

  // ---- eager messages without an operation: see FastPath
  // Returns whether sendNow() may send that many bytes.
  bool maySendNow(int destination, size_t bytes);
  void sendNow(int destination, const Frame& frame, ConstSpan data);

  // ---- for the mailbox and the scheduler
  // Hands a receiver's answer to the message that it is for. Returns false where that has ended.
  bool noteAnswer(int peer, const ControlMessage& answer);
  // Announces canceled messages whose turn it is, and cancels them at once: so the k-th message
  // with a match key still meets the k-th receive. Returns whether it announced any.
  bool announceCanceled(int peer);
  // Returns whether the first frames of all messages are published.
  bool hasSentFirsts() const;
  // Returns whether that rank has read all frames from this one.
  bool hasReadAll(int peer) const { return state_.lane(peer).out.allRead(); }

 private:
  friend class PostedSend;

  void enqueue(PostedSend& message);
  void release(const PostedSend& message);
  // Copies into the free slot what publish() sends off.
  void write(std::byte* to, const Outgoing& from, size_t at, size_t bytes);
  void publish(PostedSend& message, const Frame& frame);
  void publishSlot(int peer, Frame& slot);
  // Lets the operation run whose message is the next one of the lane.
  void nextTurn(Lane& to);

  MailboxState& state_;
  ControlPlane& control_;
  FlowControl& flow_;
  SharedMemoryReads& reads_;
};

}  // namespace bluefog
