#pragma once

#include "transport/memory/Frame.hpp"
#include "transport/messages/SendState.hpp"
#include "transport/operations/MessageOp.hpp"

namespace bluefog {

class SendProtocol;

// A PostedSend is a message that a task sends. It stands in its lane's queue from its construction
// until its first frame is published, and the receiver's answers reach it until its destruction.
// Where it is destroyed too early, its place in the queue stays: the receiver is told that the
// message was canceled. Messages with equal match keys are posted in the order of the calls. It
// refers to the protocol, which must outlive it.
//
// Thread safety: only the thread that drives the engine may use it.
class PostedSend {
 public:
  PostedSend(SendProtocol& protocol, const MessageOp& op, const Outgoing& message);
  ~PostedSend();
  PostedSend(const PostedSend&) = delete;
  PostedSend& operator=(const PostedSend&) = delete;

  const SendState& operator*() const { return send_; }
  const SendState* operator->() const { return &send_; }

 private:
  friend class SendProtocol;

  SendProtocol& protocol_;
  SendState send_;
  Frame announcement_;
};

}  // namespace bluefog
