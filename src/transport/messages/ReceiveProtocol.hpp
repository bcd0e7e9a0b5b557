#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "transport/messages/ControlPlane.hpp"
#include "transport/messages/FlowControl.hpp"
#include "transport/messages/MailboxState.hpp"
#include "transport/messages/MatchQueue.hpp"
#include "transport/messages/PostedReceive.hpp"
#include "transport/messages/ReceiveConditions.hpp"
#include "transport/operations/MessageOp.hpp"

namespace bluefog {

// The ReceiveProtocol matches messages from peers with the receives that tasks post, and moves
// their bytes. It owns the queue of posted receives and the queue of unexpected messages.
//
// Thread safety: only the thread that drives the engine may use it.
class ReceiveProtocol {
 public:
  ReceiveProtocol(MailboxState& state, ControlPlane& control, FlowControl& flow)
      : state_(state), control_(control), flow_(flow) {}

  // ---- what tasks post and await
  PostedReceive post(const MessageOp& op, int source, int64_t tag);
  // Posts a receive for the second message that belongs to one that has arrived. A task that does
  // not post it does not get that message.
  PostedReceive postSecond(ReceiveState& first);
  StageReached arrived(const ReceiveState& message) const;
  StageReached arrived(const std::vector<PostedReceive>& messages) const;
  StageReached completed(const ReceiveState& message) const;
  StageReached completed(const std::vector<PostedReceive>& messages) const;
  NextFrames nextFrames(const std::vector<PostedReceive>& messages) { return {state_, messages}; }
  ControlFlushed controlFlushed(const std::vector<PostedReceive>& messages) const {
    return {state_, messages};
  }
  InterleaveLock interleaveLock() { return InterleaveLock(is_interleaving_); }

  // ---- what tasks do with a message that has arrived
  // Throws a mismatch, and tells the sender, where it has called something else than `op`.
  void requireSame(ReceiveState& message, const MessageOp& op);
  // Throws, too, where the calls are the same and the message has another length in bytes.
  void requireSame(ReceiveState& message, const MessageOp& op, size_t bytes);
  // Throws, too, where the message has no whole number of rows of so many bytes.
  void requireRows(ReceiveState& message, const MessageOp& op, size_t row);
  // Asks the sender of an announced message to stream it, to `sink`. Where that is null, the task
  // takes the frames itself.
  void accept(const PostedReceive& message, std::byte* sink);
  // Copies a buffered message to `place`, or accepts an announced one. completed() tells when it is
  // there.
  void take(const PostedReceive& message, std::byte* place);
  // Returns the payload of the frame that nextFrames() has waited for.
  const std::byte* frontPayload(const ReceiveState& message);
  // Frees that frame.
  void popFrame(ReceiveState& message);

  // ---- eager messages without an operation: see FastPath
  // Returns the next frame of that lane where it is the message of this call; otherwise null.
  const Frame* front(int source, const Signature& signature, const MatchKey& key);
  // Frees the frame that front() has returned, whose payload has that many bytes.
  void popFront(int source, size_t bytes);

  // ---- for the mailbox
  // Takes frames from the peer's lane: matches messages, and moves streamed bytes to their sinks.
  // Returns whether it took any.
  bool drain(int peer);
  // Notes that the peer has canceled a message.
  void noteBrokenOff(int peer, const ControlMessage& control);
  bool hasPosted() const { return !posted_.isEmpty(); }
  bool hasUnexpected() const { return !unexpected_.isEmpty(); }
  // Returns whether a message may still come from the peer that nobody waits for.
  bool hasAbandoned(int peer) const {
    return abandoned_by_any_ > 0 || state_.lane(peer).abandoned > 0;
  }
  // Returns what the peer has called that this rank has not, by a message that has come unexpected.
  std::optional<Signature> unexpectedFrom(int peer) const;

  // ---- for the CallTracker
  // Ends the waits for messages that the source does not send, because it has made that call.
  void notePassed(const Counter& counter, uint64_t number, int source);
  // Rejects unexpected messages of that call and of earlier ones.
  void rejectUpTo(const Counter& counter, uint64_t number, int source);
  // Rejects unexpected messages of calls up to that number, by any counter, and forgets abandoned
  // receives of them.
  void forgetCallsUpTo(uint64_t number, int source);

 private:
  friend class PostedReceive;

  PostedReceive post(uint64_t receiver, int source, const MatchKey& key);
  StageReached reached(const std::vector<PostedReceive>& messages, ReceiveState::Stage stage) const;
  void abandon(ReceiveState& message);
  // Takes the first frame of a message. Returns false where that has to stay in the lane.
  bool deliver(int peer, const Frame& frame, const std::byte* payload);
  void fill(const std::shared_ptr<ReceiveState>& receive, int peer, const Frame& frame,
            const std::byte* payload);
  // Takes a frame of a streaming message. Returns false where a task takes it, in step with others.
  bool takeData(int peer, const Frame& frame, const std::byte* payload);
  void reject(const MatchQueue::Messages& unexpected);
  // Tells the sender that no operation has received the message.
  void reject(ReceiveState& message);
  // Completes a message without its data, and answers its sender.
  void turnDown(ReceiveState& message, const ControlMessage& answer);
  [[noreturn]] void refuse(ReceiveState& message, const ControlMessage& answer,
                           const Failure& failure);
  void popLane(int peer);

  MailboxState& state_;
  ControlPlane& control_;
  FlowControl& flow_;
  MatchQueue posted_;
  MatchQueue unexpected_;
  size_t abandoned_by_any_ = 0;  // abandoned receives that any rank may send to
  bool is_interleaving_ = false;
};

}  // namespace bluefog
