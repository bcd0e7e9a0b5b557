#include "transport/Mailbox.hpp"

#include <algorithm>

#include "core/Reduce.hpp"

namespace bluefog {

Mailbox::Mailbox(const Segments& segments, const Membership& members, Bells& bells)
    : members_(members), bells_(bells) {
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
        .answers = Answers(segment.grants(peer, members.rank), segment.grants(members.rank, peer)),
        .elsewhere = {},
    });
  }
}

Mailbox::Departing::Departing(Mailbox& mailbox, const Op& op, const Outgoing& message)
    : mailbox_(mailbox), bytes_(message.data.bytes()) {
  Lane& lane = mailbox.lane(message.destination);
  outbound_.destination = message.destination;
  outbound_.id = messageId(op.sequence, message.phase);
  lane.departing.push_back(outbound_.id);
  lane.unanswered.emplace(outbound_.id, &outbound_);
  announcement_.type = FrameType::kAnnounce;
  announcement_.id = outbound_.id;
  announcement_.tag = message.tag;
  announcement_.offset = bytes_;
  announcement_.weight = message.weight;
  announcement_.signature = op.signature;
  announcement_.sent = secondsNow();
}

Mailbox::Departing::~Departing() {
  Lane& lane = mailbox_.lane(outbound_.destination);
  lane.unanswered.erase(outbound_.id);
  if (!lane.departing.empty() && lane.departing.front() <= outbound_.id) {
    lane.unsent.emplace(outbound_.id, Unsent{announcement_, mailbox_.why_});
  } else if (!outbound_.is_sent && outbound_.answer.answer <= Grant::kAccepted) {
    mailbox_.breakOff(outbound_.destination, outbound_.id, Grant::kBrokenOff, mailbox_.why_);
  }
}

bool Mailbox::Answered::await_resume() const {
  if (message_->answer.answer == Grant::kRefused) {
    throw mismatch(mailbox_.members_, op_, peer_, message_->answer.expected);
  }
  if (message_->answer.answer == Grant::kUncalled) {
    throw mailbox_.uncalled(mailbox_.rank(), peer_, op_.signature);
  }
  return message_->answer.answer == Grant::kAccepted;
}

GivenUp Mailbox::givenUpFor(const Failure& failure) const {
  return {failure.cause, members_.among(failure.ranks)};
}

Failure Mailbox::failureOf(int peer, const GivenUp& theirs) const {
  const int who = members_.global(peer);
  const std::string rank = "rank " + std::to_string(who);
  std::vector<int> blamed = members_.global(theirs.blamed.below(members_.size));
  if (blamed.empty()) {
    blamed.push_back(who);
  }
  if (theirs.why == Cause::kMismatch) {
    return {theirs.why, blamed, "ranks did not agree on the matching operation of " + rank};
  }
  const bool for_another = blamed != std::vector{who};
  return {theirs.why, blamed,
          rank + " had already given up the matching operation" +
              (for_another ? ": nothing from " + rankList(blamed) : "")};
}

Failure Mailbox::withdrawn(const Departing& message) const {
  return failureOf(message->destination, message->answer.given_up);
}

std::optional<LateRefusal> Mailbox::takeLateRefusal() {
  if (late_refusals_.empty()) {
    return std::nullopt;
  }
  const LateRefusal first = late_refusals_.front();
  late_refusals_.pop_front();
  return first;
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
    if (message->state != Inbound::State::kComplete && message->broken_off) {
      return mailbox_.failureOf(message->source, *message->broken_off);
    }
  }
  return std::nullopt;
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

std::optional<Failure> Mailbox::Heads::brokenOff() const {
  for (const Expected& message : messages_) {
    if (message->broken_off && !isHere(*message)) {
      return mailbox_.failureOf(message->source, *message->broken_off);
    }
  }
  return std::nullopt;
}

Mailbox::Expected Mailbox::expect(const Op& op, int source, int64_t tag) {
  const OpKind kind = op.signature.kind;
  while (std::shared_ptr<Inbound> early = unexpected_.take(source, kind, tag)) {
    leave(*early);
    if (!isUncalled(early->frame(), op.sequence, early->broken_off)) {
      early->receiver = op.sequence;
      return {*this, std::move(early)};
    }
    throwAway(source, early->frame());
  }
  auto message = std::make_shared<Inbound>();
  message->receiver = op.sequence;
  message->source = source;
  message->kind = kind;
  message->tag = tag;
  expected_.add(message);
  return {*this, std::move(message)};
}

void Mailbox::abandon(Inbound& message) {
  switch (message.state) {
    case Inbound::State::kExpected:
      message.abandoned = why_;  // stays in line: the message that comes was meant for it
      ++(message.source == kAnySource ? abandoned_by_any_ : lane(message.source).abandoned);
      break;
    case Inbound::State::kAnnounced:
    case Inbound::State::kStreaming:
      lane(message.source).coming.erase(message.id);
      breakOff(message.source, message.id, Grant::kWithdrawn, message.abandoned.value_or(why_));
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

void Mailbox::accept(const Expected& message, std::byte* sink) {
  message->sink = sink;
  message->state = Inbound::State::kStreaming;
  answer(message->source, {.id = message->id, .answer = Grant::kAccepted});
  if (message->bytes == 0) {
    message->state = Inbound::State::kComplete;
    lane(message->source).coming.erase(message->id);
  }
}

bool Mailbox::mayGoAtOnce(const Outgoing& message) {
  const size_t bytes = message.data.bytes();
  return message.is_ready && bytes <= payload() &&
         lane(message.destination).outstanding + charge(bytes) <= kCredit;
}

void Mailbox::credit(const Inbound& message) {
  Lane& from = lane(message.source);
  from.uncredited += charge(message);
  if (from.uncredited >= kCreditStep) {
    answer(message.source, {.id = std::exchange(from.uncredited, 0), .answer = Grant::kCredit});
  }
}

void Mailbox::tellElsewhere(int peer, const Elsewhere& here) {
  answer(peer, {.id = here.waits, .answer = Grant::kElsewhere, .expected = here.called});
}

std::optional<Elsewhere> Mailbox::takeElsewhere(int peer) {
  return std::exchange(lane(peer).elsewhere, std::nullopt);
}

void Mailbox::requireSame(Inbound& message, const Op& op) {
  if (message.signature == op.signature) {
    return;
  }
  message.state = Inbound::State::kComplete;
  lane(message.source).coming.erase(message.id);
  answer(message.source, {.id = message.id, .answer = Grant::kRefused, .expected = op.signature});
  const Failure failure = mismatch(members_, op, message.source, message.signature);
  why_ = givenUpFor(failure);  // of what the caller's script still expects
  throw failure;
}

void Mailbox::requireSame(Inbound& message, const Op& op, size_t bytes) {
  requireSame(message, op);
  if (message.bytes != bytes) {
    throw damaged(members_, message.source, "a message");
  }
}

void Mailbox::requireRows(Inbound& message, const Op& op, size_t row) {
  requireSame(message, op);
  if (message.bytes > 0 && (row == 0 || message.bytes % row != 0)) {
    throw damaged(members_, message.source, "a message");
  }
}

void Mailbox::take(const Expected& message, std::byte* place) {
  if (message->state == Inbound::State::kHere) {
    copyBytes(place, message->payload.data(), message->bytes);
    message->state = Inbound::State::kComplete;
  } else {
    accept(message, place);
  }
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
  if (message.received >= message.bytes) {
    message.state = Inbound::State::kComplete;
    from.coming.erase(message.id);
  }
}

void Mailbox::sendWhole(Departing& message, const Outgoing& from) {
  Frame frame = message.announcement_;
  frame.type = FrameType::kEager;
  frame.offset = 0;
  frame.bytes = static_cast<uint32_t>(message.bytes_);
  write(from.destination, from, 0, frame.bytes);
  publish(message, frame);
}

void Mailbox::announce(Departing& message) {
  publish(message, message.announcement_);
}

size_t Mailbox::sendPart(Departing& message, const Outgoing& from, size_t at) {
  Frame frame = message.announcement_;
  frame.type = FrameType::kData;
  frame.offset = at;
  frame.bytes = static_cast<uint32_t>(std::min(payload(), message.bytes_ - at));
  write(from.destination, from, at, frame.bytes);
  publish(message, frame);
  return frame.bytes;
}

void Mailbox::write(int peer, const Outgoing& from, size_t at, size_t bytes) {
  std::byte* to = payloadOf(lane(peer).out.slot());
  from.data.forEach(at, bytes, [&](const ConstSpan& span, size_t place) {
    passage_.write(to + place, span.data, span.bytes);
  });
}

void Mailbox::publish(Departing& message, const Frame& frame) {
  const int peer = message->destination;
  Lane& to = lane(peer);
  *to.out.slot() = frame;
  to.out.slot()->written = passage_.sendOff(1);
  to.out.publish();
  const size_t sent = frame.type == FrameType::kAnnounce ? 0 : frame.offset + frame.bytes;
  message.outbound_.is_sent = sent >= message.bytes_;
  sent_.fetch_add(frame.bytes, std::memory_order_relaxed);
  if (frame.type == FrameType::kEager) {
    to.outstanding += charge(frame.bytes);
  }
  if (!to.departing.empty() && to.departing.front() == message->id) {
    nextTurn(to);
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

bool Mailbox::owesAnything() const {
  return !is_silent_ && std::any_of(lanes_.begin(), lanes_.end(), [this](const Lane& lane) {
    return !lane.is_gone && (abandoned_by_any_ > 0 || lane.abandoned > 0 ||
                             lane.answers.owesAny() || !lane.unsent.empty());
  });
}

void Mailbox::nextTurn(Lane& to) {
  to.departing.pop_front();
  if (!to.departing.empty()) {
    stirred_.push_back(operationOf(to.departing.front()));
  }
}

// So that the k-th message still meets the k-th receive.
bool Mailbox::announceUnsent(int peer) {
  Lane& to = lane(peer);
  bool moved = false;
  while (!to.unsent.empty() && to.unsent.begin()->first == to.departing.front() && to.out.room()) {
    const Unsent& message = to.unsent.begin()->second;
    *to.out.slot() = message.announcement;
    to.out.publish();
    breakOff(peer, to.departing.front(), Grant::kBrokenOff, message.why);
    to.unsent.erase(to.unsent.begin());
    nextTurn(to);
    bells_.touch(peer);
    moved = true;
  }
  return moved;
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
      break;  // else what this rank sends waits until the lane is empty: see Pause
    }
  }
  return moved;
}

bool Mailbox::deliver(int peer, const Frame& frame, const std::byte* payload) {
  lane(peer).elsewhere.reset();
  if (const auto message = expected_.take(peer, frame.signature.kind, frame.tag)) {
    const auto ended = lane(peer).broken_off.find(frame.id);
    const bool is_broken_off = ended != lane(peer).broken_off.end();
    if (isUncalled(frame, message->receiver,
                   is_broken_off ? std::optional(ended->second) : std::nullopt)) {
      expected_.putBack(message);
      throwAway(peer, frame);
      return true;
    }
    size_t& abandoned = message->source == kAnySource ? abandoned_by_any_ : lane(peer).abandoned;
    fill(message, peer, frame, payload);
    stirred_.push_back(message->receiver);
    credit(*message);
    if (message->abandoned) {
      --abandoned;
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
  fill(message, peer, frame, payload);
  from.unexpected_bytes += charge(*message);
  unexpected_.add(std::move(message));
  return true;
}

void Mailbox::fill(const std::shared_ptr<Inbound>& inbound, int peer, const Frame& frame,
                   const std::byte* payload) {
  Inbound& message = *inbound;
  Lane& from_peer = lane(peer);
  message.source = peer;
  message.id = frame.id;
  message.weight = frame.weight;
  message.sent = frame.sent;
  message.signature = frame.signature;
  from_peer.unseen_from = frame.id + 1;
  if (frame.type == FrameType::kAnnounce) {
    message.state = Inbound::State::kAnnounced;
    message.bytes = frame.offset;
    // The map shares ownership with the script: frames may still come after the script has ended.
    from_peer.coming.emplace(message.id, inbound);
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
  message.state = Inbound::State::kHere;
}

// False when the frame is for a script that takes it in step with others.
bool Mailbox::takeData(int peer, const Frame& frame, const std::byte* payload) {
  Lane& from = lane(peer);
  const auto found = from.coming.find(frame.id);
  if (found == from.coming.end() || found->second->state == Inbound::State::kAnnounced) {
    return true;  // its operation has ended: thrown away
  }
  Inbound& message = *found->second;
  if (message.sink == nullptr) {
    return false;
  }
  const size_t whole = message.bytes;
  if (frame.bytes > Mailbox::payload() || frame.offset > whole ||
      frame.bytes > whole - frame.offset) {
    throw damaged(members_, peer, "a message");
  }
  passage_.look(frame.written, payload, frame.bytes);
  copyBytes(message.sink + frame.offset, payload, frame.bytes, storesFor(whole));
  message.received += frame.bytes;
  if (message.received >= whole) {
    message.state = Inbound::State::kComplete;
    stirred_.push_back(message.receiver);
    from.coming.erase(found);
  }
  return true;
}

void Mailbox::breakOff(int peer, uint64_t id, Grant::Answer how, const GivenUp& why) {
  if (!is_silent_) {
    answer(peer, {.id = id, .answer = how, .given_up = why});
  }
}

void Mailbox::answer(int peer, const Grant& grant) {
  lane(peer).answers.owe(grant);
  sendAnswers(peer);
}

bool Mailbox::sendAnswers(int peer) {
  const bool moved = lane(peer).answers.send();
  if (moved) {
    bells_.touch(peer);
  }
  return moved;
}

bool Mailbox::drainAnswers(int peer) {
  Answers& answers = lane(peer).answers;
  bool moved = false;
  while (true) {
    if (!answers.isSound()) {
      throw damaged(members_, peer, "its answers");
    }
    const std::optional<Grant> grant = answers.take();
    if (!grant) {
      break;
    }
    hear(peer, *grant);
    moved = true;
  }
  if (moved) {
    bells_.touch(peer);
  }
  return moved;
}

void Mailbox::hear(int peer, const Grant& grant) {
  Lane& from = lane(peer);
  switch (grant.answer) {
    case Grant::kElsewhere:
      from.elsewhere = {grant.id, grant.expected};
      return;
    case Grant::kBrokenOff:
      hearBrokenOff(peer, grant);
      return;
    case Grant::kCredit:
      from.outstanding -= std::min<size_t>(grant.id, from.outstanding);
      return;
    default:
      break;
  }
  const auto found = from.unanswered.find(grant.id);
  if (found != from.unanswered.end()) {
    found->second->answer = grant;
    stirred_.push_back(operationOf(grant.id));
  } else if (grant.answer == Grant::kRefused) {
    noteLateRefusal(peer, grant);
  } else if (grant.answer == Grant::kUncalled) {
    tellLater({operationOf(grant.id), uncalled(rank(), peer, grant.expected)});
  }
}

void Mailbox::hearBrokenOff(int peer, const Grant& grant) {
  Lane& from = lane(peer);
  const auto found = from.coming.find(grant.id);
  if (found != from.coming.end()) {
    found->second->broken_off = grant.given_up;
    stirred_.push_back(found->second->receiver);
  } else if (grant.id >= from.unseen_from) {
    from.broken_off.emplace(grant.id, grant.given_up);
  }
}

void Mailbox::tellLater(LateRefusal refusal) {
  if (late_refusals_.size() < kMostLateRefusals) {
    late_refusals_.push_back(std::move(refusal));
  }
}

// Where all ranks call the same operations, their numbers tell what belongs together, however late:
// what has a smaller one was meant for an earlier call.
bool Mailbox::isUncalled(const Frame& frame, uint64_t receiver,
                         const std::optional<GivenUp>& broken_off) const {
  if (!isBetweenNeighbors(frame.signature.kind) || operationOf(frame.id) >= receiver) {
    return false;
  }
  if (broken_off && broken_off->why == Cause::kTimeout) {
    return true;
  }
  // To the second.
  const std::chrono::seconds age(static_cast<uint16_t>(secondsNow() - frame.sent));
  return age - std::chrono::seconds(1) > patience_;
}

void Mailbox::giveUpUncalled() {
  const auto is_old = [this](const Inbound& message) {
    return isUncalled(message.frame(), last_call_ + 1, message.broken_off);
  };
  while (const std::shared_ptr<Inbound> message = unexpected_.takeOne(is_old)) {
    leave(*message);
    throwAway(message->source, message->frame());
  }
}

void Mailbox::throwAway(int peer, const Frame& frame) {
  lane(peer).coming.erase(frame.id);
  lane(peer).broken_off.erase(frame.id);
  answer(peer, {.id = frame.id, .answer = Grant::kUncalled, .expected = frame.signature});
  tellLater({0, uncalled(peer, rank(), frame.signature)});
}

// It is not in line any more.
void Mailbox::leave(const Inbound& message) {
  lane(message.source).unexpected_bytes -= charge(message);
  credit(message);
}

Failure Mailbox::uncalled(int from, int to, const Signature& sent) const {
  const auto number = [this](int rank) { return std::to_string(members_.global(rank)); };
  const int other = from == rank() ? to : from;
  return {Cause::kMismatch,
          {members_.global(other)},
          "ranks do not agree on the edge " + number(from) + " -> " + number(to) + ": rank " +
              number(from) + " sent along it in " + name(sent) + details(sent) + ", and rank " +
              number(to) + " did not receive from it before the timeout"};
}

void Mailbox::giveUpOn(const RankSet& gone) {
  for (int peer : gone.below(members_.size)) {
    lane(peer).is_gone = true;
  }
}

void Mailbox::noteLateRefusal(int peer, const Grant& grant) {
  const int who = members_.global(peer);
  tellLater({operationOf(grant.id),
             {Cause::kMismatch,
              {who},
              "rank " + std::to_string(who) + " could not take this rank's message #" +
                  std::to_string(operationOf(grant.id)) + ": it called " + name(grant.expected) +
                  details(grant.expected)}});
}

void Mailbox::popLane(int peer) {
  lane(peer).in.pop();
  bells_.touch(peer);
}

}  // namespace bluefog
