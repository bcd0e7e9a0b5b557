#include "transport/messages/ReceiveConditions.hpp"

#include <algorithm>

#include "transport/messages/MessageFailures.hpp"

namespace bluefog {

bool StageReached::ready() {
  return std::all_of(messages_.begin(), messages_.end(),
                     [this](const ReceiveState* message) { return message->stage >= stage_; });
}

std::vector<int> StageReached::missing() const {
  std::vector<int> ranks;
  for (const ReceiveState* message : messages_) {
    if (message->stage >= stage_) {
      continue;
    }
    if (message->source != kAnySource) {
      ranks.push_back(message->source);
      continue;
    }
    for (int peer = 0; peer < state_.members.size; ++peer) {
      if (peer != state_.members.rank) {
        ranks.push_back(peer);
      }
    }
  }
  return ranks;
}

std::optional<Failure> StageReached::brokenOff() const {
  for (const ReceiveState* message : messages_) {
    if (message->is_passed) {
      return passedBySource(state_.members, *message);
    }
    if (message->stage != ReceiveState::Stage::kComplete && message->broken_off) {
      return canceledBy(state_.members, message->source, *message->broken_off);
    }
  }
  return std::nullopt;
}

bool StageReached::anyWillDo() const {
  return messages_.size() == 1 && messages_.front()->source == kAnySource;
}

bool NextFrames::hasCome(const ReceiveState& message) const {
  const Frame* frame = state_.lane(message.source).in.front();
  return frame != nullptr && frame->type == FrameType::kData && frame->id == message.id;
}

std::vector<int> NextFrames::missing() const {
  std::vector<int> ranks;
  for (const PostedReceive& message : messages_) {
    if (!hasCome(*message)) {
      ranks.push_back(message->source);
    }
  }
  return ranks;
}

std::optional<Failure> NextFrames::brokenOff() const {
  for (const PostedReceive& message : messages_) {
    if (message->broken_off && !hasCome(*message)) {
      return canceledBy(state_.members, message->source, *message->broken_off);
    }
  }
  return std::nullopt;
}

std::vector<int> ControlFlushed::missing() const {
  std::vector<int> ranks;
  for (const PostedReceive& message : messages_) {
    const Lane& from = state_.lane(message->source);
    if (from.control.hasQueued() && !from.is_gone) {
      ranks.push_back(message->source);
    }
  }
  return ranks;
}

}  // namespace bluefog
