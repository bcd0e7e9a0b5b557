// What tasks wait for.
#include "transport/messages/Mailbox.hpp"

#include <algorithm>
#include <utility>

namespace bluefog {

bool Mailbox::Answered::await_resume() const {
  if (message_->answer.kind == ControlMessage::kRefused) {
    throw mismatch(mailbox_.members_, op_, peer_, message_->answer.signature);
  }
  if (message_->answer.kind == ControlMessage::kNotReceived) {
    throw mailbox_.notReceived(peer_, op_.signature, op_.number);
  }
  return message_->answer.kind == ControlMessage::kClearToSend;
}

bool Mailbox::Reached::ready() {
  return std::all_of(messages_.begin(), messages_.end(),
                     [this](const Inbound* message) { return message->state >= state_; });
}

std::vector<int> Mailbox::Reached::missing() const {
  std::vector<int> ranks;
  for (const Inbound* message : messages_) {
    if (message->state >= state_) {
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

std::optional<Failure> Mailbox::Reached::brokenOff() const {
  for (const Inbound* message : messages_) {
    if (message->is_passed) {
      return mailbox_.passed(*message);
    }
    if (message->state != Inbound::State::kComplete && message->broken_off) {
      return mailbox_.failureOf(message->source, *message->broken_off);
    }
  }
  return std::nullopt;
}

bool Mailbox::Reached::anyWillDo() const {
  return messages_.size() == 1 && messages_.front()->source == kAnySource;
}

std::vector<int> Mailbox::Told::missing() const {
  std::vector<int> ranks;
  for (const Expected& message : messages_) {
    const Lane& from = mailbox_.lane(message->source);
    if (from.answers.owesAny() && !from.is_gone) {
      ranks.push_back(message->source);
    }
  }
  return ranks;
}

bool Mailbox::Heads::isHere(const Inbound& message) const {
  const Frame* frame = mailbox_.lane(message.source).in.front();
  return frame != nullptr && frame->type == FrameType::kData && frame->id == message.id;
}

std::vector<int> Mailbox::Heads::missing() const {
  std::vector<int> ranks;
  for (const Expected& message : messages_) {
    if (!isHere(*message)) {
      ranks.push_back(message->source);
    }
  }
  return ranks;
}

std::optional<Failure> Mailbox::Heads::brokenOff() const {
  for (const Expected& message : messages_) {
    if (message->broken_off && !isHere(*message)) {
      return mailbox_.failureOf(message->source, *message->broken_off);
    }
  }
  return std::nullopt;
}

Mailbox::Reached Mailbox::arrived(const Inbound& message) {
  return {*this, {&message}, Inbound::State::kHere};
}

Mailbox::Reached Mailbox::arrived(const std::vector<Expected>& messages) {
  return reached(messages, Inbound::State::kHere);
}

Mailbox::Reached Mailbox::completed(const Inbound& message) {
  return {*this, {&message}, Inbound::State::kComplete};
}

Mailbox::Reached Mailbox::completed(const std::vector<Expected>& messages) {
  return reached(messages, Inbound::State::kComplete);
}

Mailbox::Reached Mailbox::reached(const std::vector<Expected>& messages, Inbound::State state) {
  std::vector<const Inbound*> all;
  all.reserve(messages.size());
  for (const Expected& message : messages) {
    all.push_back(&*message);
  }
  return {*this, std::move(all), state};
}

}  // namespace bluefog
