#include "transport/messages/Mailbox.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/Reduce.hpp"

namespace bluefog {

Mailbox::Mailbox(const Segments& segments, const Membership& members, PendingWakeups& wakeups)
    : members_(members), wakeups_(wakeups), segments_(segments) {
  for (int peer = 0; peer < members.size; ++peer) {
    const Segment& segment = segments.with(peer);
    lanes_.push_back(Lane{
        .out = RingWriter(segment.lane(members.rank, peer), Segment::laneShape()),
        .in = RingReader(segment.lane(peer, members.rank), Segment::laneShape(), 0),
        .departing = {},
        .unsent = {},
        .unanswered = {},
        .coming = {},
        .broken_off = {},
        .answers = ControlChannel(segment.controlRing(peer, members.rank),
                                  segment.controlRing(members.rank, peer)),
        .offers_over = &segment.controlRing(members.rank, peer).offers_over,
        .their_offers_over = &segment.controlRing(peer, members.rank).offers_over,
        .heap = {},
        .deadlock_notice = {},
    });
  }
}

Mailbox::PostedReceive Mailbox::expect(const MessageOp& op, int source, int64_t tag) {
  return expect(op.sequence, source, {matchedAs(op.signature.kind), tag, op.number});
}

Mailbox::PostedReceive Mailbox::expectSecond(ReceiveState& first) {
  if (!std::exchange(first.has_second, false)) {
    throw damaged(members_, first.source, "a message");
  }
  return expect(first.receiver, first.source,
                {first.signature.kind, static_cast<int64_t>(first.id), 0});
}

Mailbox::PostedReceive Mailbox::expect(uint64_t receiver, int source, const MatchKey& key) {
  if (std::shared_ptr<ReceiveState> early = unexpected_.take(source, key)) {
    leave(*early);
    early->receiver = receiver;
    return {*this, std::move(early)};
  }
  auto message = std::make_shared<ReceiveState>();
  message->receiver = receiver;
  message->source = source;
  message->key = key;
  const std::optional<Counter> counter = Counter::of(key, source);
  message->is_passed = counter && unexpected_.hasLater(key, source);
  expected_.add(message);
  return {*this, std::move(message)};
}

void Mailbox::abandon(ReceiveState& message) {
  if (message.has_second) {
    expectSecond(message);  // and abandons it
  }
  switch (message.stage) {
    case ReceiveState::Stage::kExpected:
      if (message.is_passed) {
        expected_.remove(message);
        break;
      }
      message.abandoned = why_;  // stays in line: the message that comes was meant for it
      ++(message.source == kAnySource ? abandoned_by_any_ : lane(message.source).abandoned);
      break;
    case ReceiveState::Stage::kAnnounced:
    case ReceiveState::Stage::kStreaming:
      lane(message.source).coming.erase(message.id);
      breakOff(message.source, message.id, ControlMessage::kWithdrawn,
               message.abandoned.value_or(why_));
      break;
    case ReceiveState::Stage::kHere:
    case ReceiveState::Stage::kComplete:
      break;
  }
}

void Mailbox::accept(const PostedReceive& message, std::byte* sink) {
  message->sink = sink;
  message->stage = ReceiveState::Stage::kStreaming;
  answer(message->source, {.id = message->id, .kind = ControlMessage::kClearToSend});
  if (message->bytes == 0) {
    message->stage = ReceiveState::Stage::kComplete;
    lane(message->source).coming.erase(message->id);
  }
}

void Mailbox::credit(int source, size_t charged) {
  Lane& from = lane(source);
  from.uncredited += charged;
  if (from.uncredited >= kCreditStep) {
    answer(source, {.id = std::exchange(from.uncredited, 0), .kind = ControlMessage::kCredit});
  }
}

void Mailbox::requireSame(ReceiveState& message, const MessageOp& op) {
  if (message.signature != op.signature) {
    refuse(message,
           {.id = message.id,
            .kind = ControlMessage::kRefused,
            .signature = op.signature,
            .number = message.key.number},
           mismatch(members_, op, message.source, message.signature));
  }
}

// Nothing more of it comes, nor does its sender hear anything else.
void Mailbox::turnDown(ReceiveState& message, const ControlMessage& control) {
  message.stage = ReceiveState::Stage::kComplete;
  lane(message.source).coming.erase(message.id);
  answer(message.source, control);
}

void Mailbox::refuse(ReceiveState& message, const ControlMessage& control, const Failure& failure) {
  turnDown(message, control);
  why_ = cancelReasonFor(failure);  // of what the caller's task still expects
  throw failure;
}

void Mailbox::requireSame(ReceiveState& message, const MessageOp& op, size_t bytes) {
  requireSame(message, op);
  if (message.bytes != bytes) {
    throw damaged(members_, message.source, "a message");
  }
}

void Mailbox::requireRows(ReceiveState& message, const MessageOp& op, size_t row) {
  requireSame(message, op);
  if (message.bytes > 0 && (row == 0 || message.bytes % row != 0)) {
    throw damaged(members_, message.source, "a message");
  }
}

void Mailbox::take(const PostedReceive& message, std::byte* place) {
  if (message->stage == ReceiveState::Stage::kHere) {
    copyBytes(place, message->payload.data(), message->bytes);
    noteTouched(message->bytes, message->bytes);
    message->stage = ReceiveState::Stage::kComplete;
  } else {
    accept(message, place);
  }
}

const std::byte* Mailbox::head(const ReceiveState& message) {
  const Frame* frame = lane(message.source).in.front();
  store_policy_.observe(frame->written, payloadOf(frame), payload());
  return payloadOf(frame);
}

void Mailbox::pop(ReceiveState& message) {
  Lane& from = lane(message.source);
  message.received += from.in.front()->bytes;
  popLane(message.source);
  if (message.received >= message.bytes) {
    message.stage = ReceiveState::Stage::kComplete;
    from.coming.erase(message.id);
  }
}

bool Mailbox::drain() {
  bool moved = false;
  for (int peer = 0; peer < members_.size; ++peer) {
    moved |= drainAnswers(peer);
    moved |= drainLane(peer);
    moved |= sendAnswers(peer);
    moved |= announceUnsent(peer);
  }
  return moved;
}

bool Mailbox::owesAnything() const {
  return !is_silent_ && std::any_of(lanes_.begin(), lanes_.end(), [this](const Lane& lane) {
    return !lane.is_gone && (abandoned_by_any_ > 0 || lane.abandoned > 0 ||
                             lane.answers.owesAny() || !lane.unsent.empty());
  });
}

bool Mailbox::drainLane(int peer) {
  bool moved = false;
  while (const Frame* front = lane(peer).in.front()) {
    const Frame frame = *front;  // a damaged peer may write into it while it is read
    const std::byte* payload = payloadOf(front);
    const bool is_data = frame.type == FrameType::kData;
    if (!(is_data ? takeData(peer, frame, payload) : deliver(peer, frame, payload))) {
      break;
    }
    popLane(peer);
    moved = true;
    if (is_data) {
      break;  // else what this rank sends waits until the lane is empty: see Yield
    }
  }
  return moved;
}

bool Mailbox::deliver(int peer, const Frame& frame, const std::byte* payload) {
  lane(peer).deadlock_notice.reset();
  const MatchKey key = matchKeyOf(frame);
  const std::optional<Counter> counter = Counter::of(key, peer);
  if (counter) {
    notePassed(*counter, key.number - 1, peer);
  }
  if (const auto message = expected_.take(peer, key)) {
    size_t& abandoned = message->source == kAnySource ? abandoned_by_any_ : lane(peer).abandoned;
    fill(message, peer, frame, payload);
    credit(peer, charge(*message));
    runnable_.push_back(message->receiver);
    if (message->abandoned) {
      --abandoned;
      abandon(*message);
    }
    return true;
  }
  Lane& from = lane(peer);
  const bool is_late =
      key.number > 0 && (key.number <= aligned_ || (counter && key.number <= calls_.of(*counter)));
  if (!is_late && from.unexpected_bytes > kMostUnexpected) {
    return false;
  }
  auto message = std::make_shared<ReceiveState>();
  message->key = key;
  fill(message, peer, frame, payload);
  if (is_late) {
    credit(peer, charge(*message));
    turnAway(*message);
    return true;
  }
  from.unexpected_bytes += charge(*message);
  unexpected_.add(std::move(message));
  return true;
}

void Mailbox::fill(const std::shared_ptr<ReceiveState>& receive, int peer, const Frame& frame,
                   const std::byte* payload) {
  ReceiveState& message = *receive;
  Lane& from_peer = lane(peer);
  message.source = peer;
  message.id = frame.id;
  message.weight = frame.weight;
  message.signature = frame.signature;
  message.has_second = phaseOf(frame.id) == Phase::kFirst;
  from_peer.unseen_from = frame.id + 1;
  if (frame.type == FrameType::kAnnounce) {
    message.stage = ReceiveState::Stage::kAnnounced;
    message.bytes = frame.offset;
    if (frame.bytes == sizeof(uint64_t)) {
      std::memcpy(&message.offer.emplace(), payload, sizeof(uint64_t));
      store_policy_.observe(frame.written, payload + kSampleAt, StorePolicy::kTimed);
    }
    // The map shares ownership with the task: frames may still come after the task has ended.
    from_peer.coming.emplace(message.id, receive);
    if (const auto ended = from_peer.broken_off.extract(message.id)) {
      message.broken_off = ended.mapped();
    }
    return;
  }
  if (frame.bytes > Mailbox::payload()) {
    throw damaged(members_, peer, "a message");
  }
  message.bytes = frame.bytes;
  message.payload.assign(payload, payload + frame.bytes);
  noteTouched(frame.bytes, frame.bytes);
  message.stage = ReceiveState::Stage::kHere;
}

// False when the frame is for a task that takes it in step with others.
bool Mailbox::takeData(int peer, const Frame& frame, const std::byte* payload) {
  Lane& from = lane(peer);
  const auto found = from.coming.find(frame.id);
  if (found == from.coming.end() || found->second->stage == ReceiveState::Stage::kAnnounced) {
    return true;  // its operation has ended: thrown away
  }
  ReceiveState& message = *found->second;
  if (message.sink == nullptr) {
    return false;
  }
  const size_t whole = message.bytes;
  if (frame.bytes > Mailbox::payload() || frame.offset > whole ||
      frame.bytes > whole - frame.offset) {
    throw damaged(members_, peer, "a message");
  }
  store_policy_.observe(frame.written, payload, frame.bytes);
  copyBytes(message.sink + frame.offset, payload, frame.bytes, storesFor(whole));
  noteTouched(frame.bytes, frame.bytes);
  message.received += frame.bytes;
  if (message.received >= whole) {
    message.stage = ReceiveState::Stage::kComplete;
    runnable_.push_back(message.receiver);
    from.coming.erase(found);
  }
  return true;
}

// It is not in line any more.
void Mailbox::leave(const ReceiveState& message) {
  lane(message.source).unexpected_bytes -= charge(message);
  credit(message.source, charge(message));
}

void Mailbox::popLane(int peer) {
  lane(peer).in.pop();
  wakeups_.add(peer);
}

}  // namespace bluefog
