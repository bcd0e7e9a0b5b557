#include "transport/messages/ReceiveProtocol.hpp"

#include <cstring>
#include <utility>

#include "core/Reduce.hpp"
#include "transport/messages/MessageFailures.hpp"

namespace bluefog {

PostedReceive ReceiveProtocol::post(const MessageOp& op, int source, int64_t tag) {
  return post(op.sequence, source, {matchedAs(op.signature.kind), tag, op.number});
}

PostedReceive ReceiveProtocol::postSecond(ReceiveState& first) {
  if (!std::exchange(first.has_second, false)) {
    throw damaged(state_.members, first.source, "a message");
  }
  return post(first.receiver, first.source,
              {first.signature.kind, static_cast<int64_t>(first.id), 0});
}

PostedReceive ReceiveProtocol::post(uint64_t receiver, int source, const MatchKey& key) {
  if (std::shared_ptr<ReceiveState> early = unexpected_.take(source, key)) {
    flow_.noteUnqueued(*early);
    early->receiver = receiver;
    return {*this, std::move(early)};
  }
  auto message = std::make_shared<ReceiveState>();
  message->receiver = receiver;
  message->source = source;
  message->key = key;
  const std::optional<Counter> counter = Counter::of(key, source);
  message->is_passed = counter && unexpected_.hasLater(key, source);
  posted_.add(message);
  return {*this, std::move(message)};
}

StageReached ReceiveProtocol::arrived(const ReceiveState& message) const {
  return {state_, {&message}, ReceiveState::Stage::kBuffered};
}

StageReached ReceiveProtocol::arrived(const std::vector<PostedReceive>& messages) const {
  return reached(messages, ReceiveState::Stage::kBuffered);
}

StageReached ReceiveProtocol::completed(const ReceiveState& message) const {
  return {state_, {&message}, ReceiveState::Stage::kComplete};
}

StageReached ReceiveProtocol::completed(const std::vector<PostedReceive>& messages) const {
  return reached(messages, ReceiveState::Stage::kComplete);
}

StageReached ReceiveProtocol::reached(const std::vector<PostedReceive>& messages,
                                      ReceiveState::Stage stage) const {
  std::vector<const ReceiveState*> all;
  all.reserve(messages.size());
  for (const PostedReceive& message : messages) {
    all.push_back(&*message);
  }
  return {state_, std::move(all), stage};
}

void ReceiveProtocol::requireSame(ReceiveState& message, const MessageOp& op) {
  if (message.signature != op.signature) {
    refuse(message,
           {.id = message.id,
            .kind = ControlMessage::kRefused,
            .signature = op.signature,
            .number = message.key.number},
           mismatch(state_.members, op, message.source, message.signature));
  }
}

void ReceiveProtocol::requireSame(ReceiveState& message, const MessageOp& op, size_t bytes) {
  requireSame(message, op);
  if (message.bytes != bytes) {
    throw damaged(state_.members, message.source, "a message");
  }
}

void ReceiveProtocol::requireRows(ReceiveState& message, const MessageOp& op, size_t row) {
  requireSame(message, op);
  if (message.bytes > 0 && (row == 0 || message.bytes % row != 0)) {
    throw damaged(state_.members, message.source, "a message");
  }
}

void ReceiveProtocol::accept(const PostedReceive& message, std::byte* sink) {
  message->sink = sink;
  message->stage = ReceiveState::Stage::kStreaming;
  control_.send(message->source, {.id = message->id, .kind = ControlMessage::kClearToSend});
  if (message->bytes == 0) {
    message->stage = ReceiveState::Stage::kComplete;
    state_.lane(message->source).coming.erase(message->id);
  }
}

void ReceiveProtocol::take(const PostedReceive& message, std::byte* place) {
  if (message->stage == ReceiveState::Stage::kBuffered) {
    copyBytes(place, message->payload.data(), message->bytes);
    state_.counters.addTouched(message->bytes, message->bytes);
    message->stage = ReceiveState::Stage::kComplete;
  } else {
    accept(message, place);
  }
}

const std::byte* ReceiveProtocol::frontPayload(const ReceiveState& message) {
  const Frame* frame = state_.lane(message.source).in.front();
  state_.store_policy.observe(frame->written, payloadOf(frame), Lane::payload());
  return payloadOf(frame);
}

void ReceiveProtocol::popFrame(ReceiveState& message) {
  Lane& from = state_.lane(message.source);
  message.received += from.in.front()->bytes;
  popLane(message.source);
  if (message.received >= message.bytes) {
    message.stage = ReceiveState::Stage::kComplete;
    from.coming.erase(message.id);
  }
}

const Frame* ReceiveProtocol::front(int source, const Signature& signature, const MatchKey& key) {
  Lane& from = state_.lane(source);
  const Frame* front = from.in.front();
  if (front == nullptr) {
    return nullptr;
  }
  const Frame frame = *front;  // a damaged peer may write into it while it is read
  const bool fits = frame.type == FrameType::kEager && frame.tag == key.tag &&
                    frame.number == key.number && frame.signature == signature &&
                    frame.bytes == signature.bytes();
  if (!fits) {
    return nullptr;
  }
  from.deadlock_notice.reset();
  from.unseen_from = frame.id + 1;
  state_.store_policy.observe(frame.written, payloadOf(front), frame.bytes);
  return front;
}

void ReceiveProtocol::popFront(int source, size_t bytes) {
  flow_.giveBack(source, FlowControl::charge(bytes));
  popLane(source);
}

bool ReceiveProtocol::drain(int peer) {
  bool moved = false;
  while (const Frame* front = state_.lane(peer).in.front()) {
    const Frame frame = *front;  // a damaged peer may write into it while it is read
    const std::byte* payload = payloadOf(front);
    const bool is_data = frame.type == FrameType::kData;
    if (!(is_data ? takeData(peer, frame, payload) : deliver(peer, frame, payload))) {
      break;
    }
    popLane(peer);
    moved = true;
    if (is_data) {
      break;  // what this rank sends would wait until the lane is empty: see Yield
    }
  }
  return moved;
}

void ReceiveProtocol::noteBrokenOff(int peer, const ControlMessage& control) {
  Lane& from = state_.lane(peer);
  const auto found = from.coming.find(control.id);
  if (found != from.coming.end()) {
    found->second->broken_off = control.cancel_reason;
    state_.runnable.push_back(found->second->receiver);
  } else if (control.id >= from.unseen_from) {
    from.broken_off.emplace(control.id, control.cancel_reason);
  }
}

std::optional<Signature> ReceiveProtocol::unexpectedFrom(int peer) const {
  const ReceiveState* message = unexpected_.from(peer);
  const bool is_none_of_calls = message == nullptr || message->key.kind == OpKind::kService;
  return is_none_of_calls ? std::nullopt : std::optional(message->signature);
}

void ReceiveProtocol::notePassed(const Counter& counter, uint64_t number, int source) {
  for (const auto& message : posted_.upTo(counter, number, source)) {
    if (message->abandoned) {
      posted_.remove(*message);
      --state_.lane(source).abandoned;
    } else if (!std::exchange(message->is_passed, true)) {
      state_.runnable.push_back(message->receiver);
    }
  }
}

void ReceiveProtocol::rejectUpTo(const Counter& counter, uint64_t number, int source) {
  reject(unexpected_.upTo(counter, number, source));
}

void ReceiveProtocol::forgetCallsUpTo(uint64_t number, int source) {
  reject(unexpected_.ofCallsUpTo(number, source));
  for (const auto& message : posted_.ofCallsUpTo(number, source)) {
    if (message->abandoned) {
      posted_.remove(*message);
      --state_.lane(source).abandoned;
    }
  }
}

void ReceiveProtocol::abandon(ReceiveState& message) {
  if (message.has_second) {
    postSecond(message);  // the result is destroyed at once, which abandons that message, too
  }
  switch (message.stage) {
    case ReceiveState::Stage::kPosted:
      if (message.is_passed) {
        posted_.remove(message);
        break;
      }
      // It stays in its queue, because the message that comes was meant for it.
      message.abandoned = state_.cancel_reason;
      ++(message.source == kAnySource ? abandoned_by_any_ : state_.lane(message.source).abandoned);
      break;
    case ReceiveState::Stage::kAnnounced:
    case ReceiveState::Stage::kStreaming:
      state_.lane(message.source).coming.erase(message.id);
      control_.cancel(message.source, message.id, ControlMessage::kWithdrawn,
                      message.abandoned.value_or(state_.cancel_reason));
      break;
    case ReceiveState::Stage::kBuffered:
    case ReceiveState::Stage::kComplete:
      break;
  }
}

bool ReceiveProtocol::deliver(int peer, const Frame& frame, const std::byte* payload) {
  Lane& from = state_.lane(peer);
  from.deadlock_notice.reset();
  const MatchKey key = matchKeyOf(frame);
  const std::optional<Counter> counter = Counter::of(key, peer);
  if (counter) {
    notePassed(*counter, key.number - 1, peer);
  }
  if (const auto message = posted_.take(peer, key)) {
    size_t& abandoned = message->source == kAnySource ? abandoned_by_any_ : from.abandoned;
    fill(message, peer, frame, payload);
    flow_.giveBack(peer, FlowControl::charge(*message));
    state_.runnable.push_back(message->receiver);
    if (message->abandoned) {
      --abandoned;
      abandon(*message);
    }
    return true;
  }
  const bool is_late = key.number > 0 && (key.number <= state_.calls.base() ||
                                          (counter && key.number <= state_.calls.of(*counter)));
  if (!is_late && !flow_.mayQueue(peer)) {
    return false;
  }
  auto message = std::make_shared<ReceiveState>();
  message->key = key;
  fill(message, peer, frame, payload);
  if (is_late) {
    flow_.giveBack(peer, FlowControl::charge(*message));
    reject(*message);
    return true;
  }
  flow_.noteQueued(peer, *message);
  unexpected_.add(std::move(message));
  return true;
}

void ReceiveProtocol::fill(const std::shared_ptr<ReceiveState>& receive, int peer,
                           const Frame& frame, const std::byte* payload) {
  ReceiveState& message = *receive;
  Lane& from = state_.lane(peer);
  message.source = peer;
  message.id = frame.id;
  message.weight = frame.weight;
  message.signature = frame.signature;
  message.has_second = phaseOf(frame.id) == Phase::kFirst;
  from.unseen_from = frame.id + 1;
  if (frame.type == FrameType::kAnnounce) {
    message.stage = ReceiveState::Stage::kAnnounced;
    message.bytes = frame.offset;
    if (frame.bytes == sizeof(uint64_t)) {
      std::memcpy(&message.offer.emplace(), payload, sizeof(uint64_t));
      state_.store_policy.observe(frame.written, payload + Lane::kSampleAt, StorePolicy::kTimed);
    }
    // The lane shares ownership with the task: frames may still come after the task has ended.
    from.coming.emplace(message.id, receive);
    if (const auto ended = from.broken_off.extract(message.id)) {
      message.broken_off = ended.mapped();
    }
    return;
  }
  if (frame.bytes > Lane::payload()) {
    throw damaged(state_.members, peer, "a message");
  }
  message.bytes = frame.bytes;
  message.payload.assign(payload, payload + frame.bytes);
  state_.counters.addTouched(frame.bytes, frame.bytes);
  message.stage = ReceiveState::Stage::kBuffered;
}

bool ReceiveProtocol::takeData(int peer, const Frame& frame, const std::byte* payload) {
  Lane& from = state_.lane(peer);
  const auto found = from.coming.find(frame.id);
  if (found == from.coming.end() || found->second->stage == ReceiveState::Stage::kAnnounced) {
    return true;  // the operation has ended, and the frame is thrown away
  }
  ReceiveState& message = *found->second;
  if (message.sink == nullptr) {
    return false;
  }
  const size_t whole = message.bytes;
  if (frame.bytes > Lane::payload() || frame.offset > whole || frame.bytes > whole - frame.offset) {
    throw damaged(state_.members, peer, "a message");
  }
  state_.store_policy.observe(frame.written, payload, frame.bytes);
  copyBytes(message.sink + frame.offset, payload, frame.bytes, storesFor(whole));
  state_.counters.addTouched(frame.bytes, frame.bytes);
  message.received += frame.bytes;
  if (message.received >= whole) {
    message.stage = ReceiveState::Stage::kComplete;
    state_.runnable.push_back(message.receiver);
    from.coming.erase(found);
  }
  return true;
}

void ReceiveProtocol::reject(const MatchQueue::Messages& unexpected) {
  for (const auto& message : unexpected) {
    unexpected_.remove(*message);
    flow_.noteUnqueued(*message);
    reject(*message);
  }
}

void ReceiveProtocol::reject(ReceiveState& message) {
  if (message.has_second) {
    postSecond(message);  // the result is destroyed at once, which abandons that message
  }
  if (message.key.number > state_.calls.base()) {
    turnDown(message, {.id = message.id,
                       .kind = ControlMessage::kNotReceived,
                       .signature = message.signature,
                       .number = message.key.number});
  } else {
    turnDown(message, {.id = message.id, .kind = ControlMessage::kWithdrawn, .cancel_reason = {}});
  }
}

void ReceiveProtocol::turnDown(ReceiveState& message, const ControlMessage& answer) {
  message.stage = ReceiveState::Stage::kComplete;
  state_.lane(message.source).coming.erase(message.id);
  control_.send(message.source, answer);
}

void ReceiveProtocol::refuse(ReceiveState& message, const ControlMessage& answer,
                             const Failure& failure) {
  turnDown(message, answer);
  // The senders of what the caller's task still waits for are told the same reason.
  state_.cancel_reason = cancelReasonOf(state_.members, failure);
  throw failure;
}

void ReceiveProtocol::popLane(int peer) {
  state_.lane(peer).in.pop();
  state_.wakeups.add(peer);
}

}  // namespace bluefog
