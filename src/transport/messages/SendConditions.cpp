#include "transport/messages/SendConditions.hpp"

#include "transport/messages/MessageFailures.hpp"

namespace bluefog {

bool ReceiverAnswer::await_resume() const {
  const ControlMessage& answer = message_->answer;
  if (answer.kind == ControlMessage::kRefused) {
    throw mismatch(state_.members, op_, message_->destination, answer.signature);
  }
  if (answer.kind == ControlMessage::kNotReceived) {
    throw notReceived(state_.members, message_->destination, op_.signature, op_.number);
  }
  return answer.kind == ControlMessage::kClearToSend;
}

}  // namespace bluefog
