#pragma once

#include <vector>

#include "transport/messages/MailboxState.hpp"
#include "transport/messages/PostedSend.hpp"
#include "transport/operations/MessageOp.hpp"
#include "transport/operations/Task.hpp"

namespace bluefog {

// The conditions in this file are what the task of a PostedSend awaits. They refer to the message
// and to the mailbox's state, which must outlive them.
//
// Thread safety: only the thread that drives the engine may use them.

// A SendCondition waits for the receiver of one message.
class SendCondition : public Awaitable {
 public:
  SendCondition(MailboxState& state, const PostedSend& message)
      : state_(state), message_(message) {}
  std::vector<int> missing() const override { return {message_->destination}; }
  void await_resume() {}

 protected:
  ~SendCondition() = default;
  Lane& lane() const { return state_.lane(message_->destination); }

  MailboxState& state_;
  const PostedSend& message_;
};

// A SendTurn is fulfilled when the message is the next one of its lane and a slot is free.
class SendTurn final : public SendCondition {
 public:
  using SendCondition::SendCondition;
  bool ready() override { return isNext() && lane().out.room(); }
  bool sleeps() const override { return !isNext(); }

 private:
  bool isNext() const { return lane().departing.front() == message_->id; }
};

// A LaneRoom is fulfilled when the lane of a streaming message has a free slot, or when the
// receiver wants no more of the message. It results in whether the receiver wants more.
class LaneRoom final : public SendCondition {
 public:
  using SendCondition::SendCondition;
  bool ready() override { return !await_resume() || lane().out.room(); }
  bool await_resume() const { return message_->answer.kind != ControlMessage::kWithdrawn; }
};

// A ReceiverAnswer is fulfilled when the receiver has answered an announcement. It results in
// whether the receiver has accepted the message, and throws Failure where the calls do not match.
class ReceiverAnswer final : public SendCondition {
 public:
  ReceiverAnswer(MailboxState& state, const PostedSend& message, const MessageOp& op)
      : SendCondition(state, message), op_(op) {}
  bool ready() override { return message_->answer.kind != ControlMessage::kNone; }
  bool sleeps() const override { return true; }
  bool await_resume() const;

 private:
  const MessageOp& op_;
};

}  // namespace bluefog
