#include "transport/Mailbox.hpp"

#include <algorithm>

#include "core/Reduce.hpp"

namespace bluefog {

Mailbox::Mailbox(const Segment& segment, const Membership& members, Bells& bells)
    : segment_(segment), members_(members), bells_(bells) {
  for (int peer = 0; peer < members.size; ++peer) {
    lanes_.push_back(Lane{
        .out = RingWriter(segment.lane(members.rank, peer), Segment::laneShape()),
        .in = RingReader(segment.lane(peer, members.rank), Segment::laneShape(), 0),
        .departing = {},
        .unsent = {},
        .unanswered = {},
        .streaming = {},
        .broken_off = {},
        .owed = {},
        .elsewhere = {},
    });
  }
}

Mailbox::Departing::Departing(Mailbox& mailbox, int destination, const Frame& frame)
    : mailbox_(mailbox), announcement_(frame) {
  Lane& lane = mailbox.lane(destination);
  outbound_.destination = destination;
  outbound_.id = lane.next_id++;
  lane.departing.push_back(outbound_.id);
  lane.unanswered.emplace(outbound_.id, &outbound_);
  announcement_.type = FrameType::kAnnounce;
  announcement_.id = outbound_.id;
}

Mailbox::Departing::~Departing() {
  Lane& lane = mailbox_.lane(outbound_.destination);
  lane.unanswered.erase(outbound_.id);
  if (std::count(lane.departing.begin(), lane.departing.end(), outbound_.id) > 0) {
    lane.unsent.emplace(outbound_.id, announcement_);
  } else if (!outbound_.is_sent && outbound_.answer <= Grant::kAccepted && !mailbox_.is_silent_) {
    mailbox_.answer(outbound_.destination, {outbound_.id, Grant::kBrokenOff, {}});
  }
}

bool Mailbox::Turn::ready() {
  Lane& lane = mailbox_.lane(peer_);
  return lane.departing.front() == message_->id && lane.out.room();
}

bool Mailbox::Answered::await_resume() const {
  if (message_->answer == Grant::kRefused) {
    throw mismatch(mailbox_.members_, op_, peer_, message_->expected);
  }
  return message_->answer == Grant::kAccepted;
}

Failure Mailbox::givenUp(int peer) const {
  const int who = members_.global(peer);
  return {Cause::kTimeout,
          {who},
          "rank " + std::to_string(who) + " had already given up the matching operation"};
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

std::vector<int> Mailbox::Reached::brokenOff() const {
  std::vector<int> ranks;
  for (const Inbound* message : messages_) {
    if (message->state < state_ && message->broken_off) {
      ranks.push_back(message->source);
    }
  }
  return ranks;
}

bool Mailbox::Reached::anyWillDo() const {
  return messages_.size() == 1 && messages_.front()->source == kAnySource;
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

std::vector<int> Mailbox::Heads::brokenOff() const {
  std::vector<int> ranks;
  for (const Expected& message : messages_) {
    if (message->broken_off && !isHere(*message)) {
      ranks.push_back(message->source);
    }
  }
  return ranks;
}

Mailbox::Expected Mailbox::expect(int source, OpKind kind, int64_t tag) {
  const auto early = std::find_if(unexpected_.begin(), unexpected_.end(),
                                  [&](const std::shared_ptr<Inbound>& message) {
                                    return message->kind == kind && message->tag == tag &&
                                           (source == kAnySource || message->source == source);
                                  });
  if (early != unexpected_.end()) {
    std::shared_ptr<Inbound> message = *early;
    unexpected_.erase(early);
    lane(message->source).unexpected_bytes -= message->payload.size();
    credit(message->source, message->payload.size());
    return {*this, std::move(message)};
  }
  auto message = std::make_shared<Inbound>();
  message->source = source;
  message->kind = kind;
  message->tag = tag;
  expected_.push_back(message);
  return {*this, std::move(message)};
}

void Mailbox::abandon(Inbound& message) {
  switch (message.state) {
    case Inbound::State::kExpected:
      message.abandoned = true;  // stays in line: the message that comes was meant for it
      break;
    case Inbound::State::kAnnounced:
      lane(message.source).broken_off.erase(message.id);
      answer(message.source, {message.id, Grant::kWithdrawn, {}});
      break;
    case Inbound::State::kStreaming:
      lane(message.source).streaming.erase(message.id);
      answer(message.source, {message.id, Grant::kWithdrawn, {}});
      break;
    case Inbound::State::kHere:
    case Inbound::State::kComplete:
      break;
  }
}

Mailbox::Reached Mailbox::arrived(const Inbound& message) {
  return {*this, {&message}, Inbound::State::kHere};
}

Mailbox::Reached Mailbox::arrived(const std::vector<Expected>& messages) {
  std::vector<const Inbound*> all;
  all.reserve(messages.size());
  for (const Expected& message : messages) {
    all.push_back(&*message);
  }
  return {*this, std::move(all), Inbound::State::kHere};
}

Mailbox::Reached Mailbox::completed(const Inbound& message) {
  return {*this, {&message}, Inbound::State::kComplete};
}

void Mailbox::accept(const Expected& message, std::byte* sink) {
  message->sink = sink;
  message->state = Inbound::State::kStreaming;
  message->broken_off = lane(message->source).broken_off.erase(message->id) > 0;
  // The map shares ownership with the script: frames may still come after the script has ended.
  lane(message->source).streaming.emplace(message->id, message.share());
  answer(message->source, {message->id, Grant::kAccepted, {}});
}

bool Mailbox::mayGoAtOnce(int destination, const Signature& signature) {
  return signature.bytes() <= payload() &&
         lane(destination).outstanding + signature.bytes() <= kCredit;
}

void Mailbox::credit(int peer, size_t bytes) {
  Lane& from = lane(peer);
  from.uncredited += bytes;
  if (from.uncredited >= kCreditStep) {
    answer(peer, {std::exchange(from.uncredited, 0), Grant::kCredit, {}});
  }
}

void Mailbox::tellGivenUp(const std::vector<int>& partners) {
  for (int peer : partners) {
    answer(peer, {lane(peer).next_id, Grant::kGaveUp, {}});
  }
}

void Mailbox::tellElsewhere(int peer, const Signature& called) {
  answer(peer, {0, Grant::kElsewhere, called});
}

std::optional<Signature> Mailbox::takeElsewhere(int peer) {
  return std::exchange(lane(peer).elsewhere, std::nullopt);
}

void Mailbox::forgetGivenUp(const std::vector<int>& peers) {
  for (int peer : peers) {
    lane(peer).given_up_from = kNot;
  }
}

void Mailbox::requireSame(Inbound& message, const Op& op) {
  if (message.signature == op.signature) {
    return;
  }
  message.state = Inbound::State::kComplete;
  lane(message.source).broken_off.erase(message.id);
  answer(message.source, {message.id, Grant::kRefused, op.signature});
  throw mismatch(members_, op, message.source, message.signature);
}

const std::byte* Mailbox::head(const Inbound& message) {
  const Frame* frame = lane(message.source).in.front();
  passage_.look(frame->written, payloadOf(frame), payload());
  return payloadOf(frame);
}

void Mailbox::pop(Inbound& message) {
  Lane& from = lane(message.source);
  message.received += from.in.front()->bytes;
  popLane(message.source);
  if (message.received >= message.signature.bytes()) {
    message.state = Inbound::State::kComplete;
    from.streaming.erase(message.id);
  }
}

void Mailbox::publish(Departing& message, const Frame& frame) {
  const int peer = message->destination;
  Lane& to = lane(peer);
  *to.out.slot() = frame;
  to.out.slot()->id = message->id;
  to.out.slot()->written = passage_.sendOff(frame.bytes, 1);
  to.out.publish();
  message.outbound_.is_sent = frame.offset + frame.bytes >= frame.signature.bytes();
  sent_.fetch_add(frame.bytes, std::memory_order_relaxed);
  if (frame.type == FrameType::kEager) {
    to.outstanding += frame.bytes;
  }
  if (!to.departing.empty() && to.departing.front() == message->id) {
    to.departing.pop_front();
  }
  bells_.touch(peer);
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

// So that the k-th message still meets the k-th receive.
bool Mailbox::announceUnsent(int peer) {
  Lane& to = lane(peer);
  bool moved = false;
  while (!to.unsent.empty() && to.unsent.begin()->first == to.departing.front() && to.out.room()) {
    *to.out.slot() = to.unsent.begin()->second;
    to.out.publish();
    answer(peer, {to.departing.front(), Grant::kBrokenOff, {}});
    to.unsent.erase(to.unsent.begin());
    to.departing.pop_front();
    bells_.touch(peer);
    moved = true;
  }
  return moved;
}

bool Mailbox::drainLane(int peer) {
  bool moved = false;
  while (const Frame* frame = lane(peer).in.front()) {
    const bool is_data = frame->type == FrameType::kData;
    if (!(is_data ? takeData(peer, *frame) : deliver(peer, *frame))) {
      break;
    }
    popLane(peer);
    moved = true;
    if (is_data) {
      break;  // else what this rank sends waits until the lane is empty: see Pause
    }
  }
  return moved;
}

bool Mailbox::deliver(int peer, const Frame& frame) {
  lane(peer).elsewhere.reset();
  if (frame.id >= lane(peer).given_up_from) {
    lane(peer).given_up_from = kNot;
  }
  const auto found = std::find_if(expected_.begin(), expected_.end(),
                                  [&](const std::shared_ptr<Inbound>& message) {
                                    return message->accepts(peer, frame.signature.kind, frame.tag);
                                  });
  if (found != expected_.end()) {
    const std::shared_ptr<Inbound> message = *found;
    expected_.erase(found);
    fill(*message, peer, frame);
    credit(peer, message->payload.size());
    if (message->abandoned) {
      abandon(*message);
    }
    return true;
  }
  Lane& from = lane(peer);
  if (from.unexpected_bytes > kMostUnexpected) {
    return false;
  }
  auto message = std::make_shared<Inbound>();
  message->kind = frame.signature.kind;
  message->tag = frame.tag;
  fill(*message, peer, frame);
  from.unexpected_bytes += message->payload.size();
  unexpected_.push_back(std::move(message));
  return true;
}

void Mailbox::fill(Inbound& message, int peer, const Frame& frame) {
  message.source = peer;
  message.id = frame.id;
  message.weight = frame.weight;
  message.signature = frame.signature;
  if (frame.type == FrameType::kAnnounce) {
    message.state = Inbound::State::kAnnounced;
    return;
  }
  // As long as its signature says, whatever the frame says: who reads it relies on that.
  const size_t bytes = frame.signature.bytes();
  const std::byte* from = payloadOf(&frame);
  message.payload.assign(from, from + (bytes <= payload() ? bytes : 0));
  message.state = Inbound::State::kHere;
}

// False when the frame is for a script that takes it in step with others.
bool Mailbox::takeData(int peer, const Frame& frame) {
  Lane& from = lane(peer);
  const auto found = from.streaming.find(frame.id);
  if (found == from.streaming.end()) {
    return true;  // its operation has ended: thrown away
  }
  Inbound& message = *found->second;
  if (message.sink == nullptr) {
    return false;
  }
  const size_t bytes = std::min<size_t>(frame.bytes, payload());
  if (frame.offset <= message.signature.bytes() &&
      bytes <= message.signature.bytes() - frame.offset) {
    passage_.look(frame.written, payloadOf(&frame), bytes);
    copyBytes(message.sink + frame.offset, payloadOf(&frame), bytes,
              storesFor(message.signature.bytes()));
  }
  message.received += bytes;
  if (message.received >= message.signature.bytes()) {
    message.state = Inbound::State::kComplete;
    from.streaming.erase(found);
  }
  return true;
}

void Mailbox::answer(int peer, const Grant& grant) {
  lane(peer).owed.push_back(grant);
  sendAnswers(peer);
}

bool Mailbox::sendAnswers(int peer) {
  std::deque<Grant>& owed = lane(peer).owed;
  if (owed.empty()) {
    return false;
  }
  GrantRing& ring_to = segment_.grants(peer, rank());
  const uint64_t read = ring_to.read.load(std::memory_order_acquire);
  uint64_t written = ring_to.written.load(std::memory_order_relaxed);
  bool moved = false;
  while (!owed.empty() && written - read < GrantRing::kEntries) {
    ring_to.entries[written % GrantRing::kEntries] = owed.front();
    owed.pop_front();
    ring_to.written.store(++written, std::memory_order_release);
    moved = true;
  }
  if (moved) {
    bells_.touch(peer);
  }
  return moved;
}

bool Mailbox::drainAnswers(int peer) {
  GrantRing& ring_from = segment_.grants(rank(), peer);
  const uint64_t written = ring_from.written.load(std::memory_order_acquire);
  uint64_t read = ring_from.read.load(std::memory_order_relaxed);
  if (read == written) {
    return false;
  }
  if (written - read > GrantRing::kEntries) {
    throw std::runtime_error("rank " + std::to_string(members_.global(peer)) +
                             " has overwritten its answers");
  }
  for (; read != written; ++read) {
    const Grant grant = ring_from.entries[read % GrantRing::kEntries];
    if (grant.answer == Grant::kGaveUp) {
      lane(peer).given_up_from = grant.id;
      continue;
    }
    if (grant.answer == Grant::kElsewhere) {
      lane(peer).elsewhere = grant.expected;
      continue;
    }
    if (grant.answer == Grant::kBrokenOff) {
      const auto found = lane(peer).streaming.find(grant.id);
      if (found != lane(peer).streaming.end()) {
        found->second->broken_off = true;
      } else {
        lane(peer).broken_off.insert(grant.id);
      }
      continue;
    }
    if (grant.answer == Grant::kCredit) {
      lane(peer).outstanding -= std::min<size_t>(grant.id, lane(peer).outstanding);
      continue;
    }
    const auto found = lane(peer).unanswered.find(grant.id);
    if (found != lane(peer).unanswered.end()) {
      found->second->answer = grant.answer;
      found->second->expected = grant.expected;
    } else if (grant.answer == Grant::kRefused) {
      const int who = members_.global(peer);
      late_refusal_ = Failure{Cause::kMismatch,
                              {who},
                              "rank " + std::to_string(who) +
                                  " could not take an earlier message of this rank: it called " +
                                  name(grant.expected) + details(grant.expected)};
    }
  }
  ring_from.read.store(read, std::memory_order_release);
  bells_.touch(peer);
  return true;
}

std::optional<Failure> Mailbox::takeLateRefusal() {
  return std::exchange(late_refusal_, std::nullopt);
}

void Mailbox::popLane(int peer) {
  lane(peer).in.pop();
  bells_.touch(peer);
}

}  // namespace bluefog
