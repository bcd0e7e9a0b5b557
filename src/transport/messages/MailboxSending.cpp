// How messages go out.
#include "transport/messages/Mailbox.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace bluefog {

Mailbox::Departing::Departing(Mailbox& mailbox, const Op& op, const Outgoing& message)
    : mailbox_(mailbox) {
  Lane& lane = mailbox.lane(message.destination);
  outbound_.destination = message.destination;
  outbound_.id = messageId(op.sequence, message.phase);
  outbound_.bytes = message.data.bytes();
  lane.departing.push_back(outbound_.id);
  lane.unanswered.emplace(outbound_.id, &outbound_);
  announcement_.type = FrameType::kAnnounce;
  announcement_.id = outbound_.id;
  announcement_.tag = message.phase == Phase::kSecond
                          ? static_cast<int64_t>(messageId(op.sequence, Phase::kFirst))
                          : message.tag;
  announcement_.offset = outbound_.bytes;
  announcement_.weight = message.weight;
  announcement_.signature = op.signature;
  announcement_.number = op.number;
}

Mailbox::Departing::~Departing() {
  Lane& lane = mailbox_.lane(outbound_.destination);
  if (outbound_.is_offered && outbound_.answer.kind == ControlMessage::kNone) {
    mailbox_.endOffers(outbound_.destination, outbound_.id);
  }
  lane.unanswered.erase(outbound_.id);
  if (!lane.departing.empty() && lane.departing.front() <= outbound_.id) {
    lane.unsent.emplace(outbound_.id, Unsent{announcement_, mailbox_.why_});
  } else if (!outbound_.is_sent && outbound_.answer.kind <= ControlMessage::kClearToSend) {
    mailbox_.breakOff(outbound_.destination, outbound_.id, ControlMessage::kBrokenOff,
                      mailbox_.why_);
  }
}

bool Mailbox::mayGoAtOnce(const Outgoing& message) {
  const size_t bytes = message.data.bytes();
  return message.is_ready && bytes <= payload() &&
         lane(message.destination).outstanding + charge(bytes) <= kCredit;
}

void Mailbox::sendWhole(Departing& message, const Outgoing& from) {
  Frame frame = message.announcement_;
  frame.type = FrameType::kEager;
  frame.offset = 0;
  frame.bytes = static_cast<uint32_t>(message->bytes);
  write(payloadOf(lane(from.destination).out.slot()), from, 0, frame.bytes);
  publish(message, frame);
}

void Mailbox::announce(Departing& message, const Outgoing& from) {
  Frame frame = message.announcement_;
  if (from.offer && segments_.hosts().isHere(from.destination)) {
    message.outbound_.is_offered = true;
    frame.bytes = sizeof *from.offer;
    std::byte* payload = payloadOf(lane(from.destination).out.slot());
    std::memcpy(payload, &*from.offer, frame.bytes);
    if (passage_.isTrial()) {
      write(payload + kSampleAt, from, 0, Passage::kTimed);
    }
    // What was streamed into that memory must be there first.
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  publish(message, frame);
}

size_t Mailbox::sendPart(Departing& message, const Outgoing& from, size_t at) {
  Frame frame = message.announcement_;
  frame.type = FrameType::kData;
  frame.offset = at;
  frame.bytes = static_cast<uint32_t>(std::min(payload(), message->bytes - at));
  write(payloadOf(lane(from.destination).out.slot()), from, at, frame.bytes);
  publish(message, frame);
  return frame.bytes;
}

void Mailbox::write(std::byte* to, const Outgoing& from, size_t at, size_t bytes) {
  from.data.forEach(at, bytes, [&](const ConstSpan& span, size_t place) {
    passage_.write(to + place, span.data, span.bytes);
  });
}

void Mailbox::publish(Departing& message, const Frame& frame) {
  const int peer = message->destination;
  Lane& to = lane(peer);
  *to.out.slot() = frame;
  sendOff(peer, *to.out.slot());
  const size_t sent = frame.type == FrameType::kAnnounce ? 0 : frame.offset + frame.bytes;
  message.outbound_.is_sent = sent >= message->bytes;
  if (!to.departing.empty() && to.departing.front() == message->id) {
    nextTurn(to);
  }
}

void Mailbox::sendOff(int peer, Frame& slot) {
  Lane& to = lane(peer);
  slot.written = passage_.sendOff(1);
  if (slot.type == FrameType::kEager) {
    to.outstanding += charge(slot.bytes);
  }
  if (slot.type != FrameType::kAnnounce) {
    sent_.fetch_add(slot.bytes, std::memory_order_relaxed);
  }
  to.out.publish();
  wakeups_.add(peer);
}

void Mailbox::nextTurn(Lane& to) {
  to.departing.pop_front();
  if (!to.departing.empty()) {
    stirred_.push_back(operationOf(to.departing.front()));
  }
}

// The k-th message of a line still meets the k-th receive, and the receiver of a call's hears of
// it.
bool Mailbox::announceUnsent(int peer) {
  Lane& to = lane(peer);
  bool moved = false;
  while (!to.unsent.empty() && to.unsent.begin()->first == to.departing.front() && to.out.room()) {
    const Unsent& message = to.unsent.begin()->second;
    *to.out.slot() = message.announcement;
    to.out.publish();
    breakOff(peer, to.departing.front(), ControlMessage::kBrokenOff, message.why);
    to.unsent.erase(to.unsent.begin());
    nextTurn(to);
    wakeups_.add(peer);
    moved = true;
  }
  return moved;
}

}  // namespace bluefog
