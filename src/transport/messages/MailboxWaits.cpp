// What tasks wait for.
#include "transport/messages/Mailbox.hpp"

#include <algorithm>
#include <utility>

namespace bluefog {

bool Mailbox::ReceiverAnswer::await_resume() const {
  if (message_->answer.kind == ControlMessage::kRefused) {
    throw mismatch(mailbox_.members_, op_, peer_, message_->answer.signature);
  }
  if (message_->answer.kind == ControlMessage::kNotReceived) {
    throw mailbox_.notReceived(peer_, op_.signature, op_.number);
  }
  return message_->answer.kind == ControlMessage::kClearToSend;
}

bool Mailbox::StageReached::ready() {
  return std::all_of(messages_.begin(), messages_.end(),
                     [this](const ReceiveState* message) { return message->stage >= stage_; });
}

std::vector<int> Mailbox::StageReached::missing() const {
  std::vector<int> ranks;
  for (const ReceiveState* message : messages_) {
    if (message->stage >= stage_) {
      continue;
    }
    if (message->source != kAnySource) {
      ranks.push_back(message->source);
      continue;
    }
    for (int peer = 0; peer < mailbox_.members_.size; ++peer) {
      if (peer != mailbox_.rank()) {
        ranks.push_back(peer);
      }
    }
  }
  return ranks;
}

std::optional<Failure> Mailbox::StageReached::brokenOff() const {
  for (const ReceiveState* message : messages_) {
    if (message->is_passed) {
      return mailbox_.passed(*message);
    }
    if (message->stage != ReceiveState::Stage::kComplete && message->broken_off) {
      return mailbox_.failureOf(message->source, *message->broken_off);
    }
  }
  return std::nullopt;
}

bool Mailbox::StageReached::anyWillDo() const {
  return messages_.size() == 1 && messages_.front()->source == kAnySource;
}

std::vector<int> Mailbox::ControlFlushed::missing() const {
  std::vector<int> ranks;
  for (const PostedReceive& message : messages_) {
    const Lane& from = mailbox_.lane(message->source);
    if (from.answers.owesAny() && !from.is_gone) {
      ranks.push_back(message->source);
    }
  }
  return ranks;
}

bool Mailbox::NextFrames::isHere(const ReceiveState& message) const {
  const Frame* frame = mailbox_.lane(message.source).in.front();
  return frame != nullptr && frame->type == FrameType::kData && frame->id == message.id;
}

std::vector<int> Mailbox::NextFrames::missing() const {
  std::vector<int> ranks;
  for (const PostedReceive& message : messages_) {
    if (!isHere(*message)) {
      ranks.push_back(message->source);
    }
  }
  return ranks;
}

std::optional<Failure> Mailbox::NextFrames::brokenOff() const {
  for (const PostedReceive& message : messages_) {
    if (message->broken_off && !isHere(*message)) {
      return mailbox_.failureOf(message->source, *message->broken_off);
    }
  }
  return std::nullopt;
}

Mailbox::StageReached Mailbox::arrived(const ReceiveState& message) {
  return {*this, {&message}, ReceiveState::Stage::kHere};
}

Mailbox::StageReached Mailbox::arrived(const std::vector<PostedReceive>& messages) {
  return reached(messages, ReceiveState::Stage::kHere);
}

Mailbox::StageReached Mailbox::completed(const ReceiveState& message) {
  return {*this, {&message}, ReceiveState::Stage::kComplete};
}

Mailbox::StageReached Mailbox::completed(const std::vector<PostedReceive>& messages) {
  return reached(messages, ReceiveState::Stage::kComplete);
}

Mailbox::StageReached Mailbox::reached(const std::vector<PostedReceive>& messages,
                                       ReceiveState::Stage stage) {
  std::vector<const ReceiveState*> all;
  all.reserve(messages.size());
  for (const PostedReceive& message : messages) {
    all.push_back(&*message);
  }
  return {*this, std::move(all), stage};
}

}  // namespace bluefog
