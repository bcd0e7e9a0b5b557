// How messages go out.
#include "transport/messages/Mailbox.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace bluefog {

Mailbox::PostedSend::PostedSend(Mailbox& mailbox, const MessageOp& op, const Outgoing& message)
    : mailbox_(mailbox) {
  Lane& lane = mailbox.lane(message.destination);
  send_.destination = message.destination;
  send_.id = messageId(op.sequence, message.phase);
  send_.bytes = message.data.bytes();
  lane.departing.push_back(send_.id);
  lane.unanswered.emplace(send_.id, &send_);
  announcement_.type = FrameType::kAnnounce;
  announcement_.id = send_.id;
  announcement_.tag = message.phase == Phase::kSecond
                          ? static_cast<int64_t>(messageId(op.sequence, Phase::kFirst))
                          : message.tag;
  announcement_.offset = send_.bytes;
  announcement_.weight = message.weight;
  announcement_.signature = op.signature;
  announcement_.number = op.number;
}

Mailbox::PostedSend::~PostedSend() {
  Lane& lane = mailbox_.lane(send_.destination);
  if (send_.is_offered && send_.answer.kind == ControlMessage::kNone) {
    mailbox_.endOffers(send_.destination, send_.id);
  }
  lane.unanswered.erase(send_.id);
  if (!lane.departing.empty() && lane.departing.front() <= send_.id) {
    lane.unsent.emplace(send_.id, Unsent{announcement_, mailbox_.why_});
  } else if (!send_.is_sent && send_.answer.kind <= ControlMessage::kClearToSend) {
    mailbox_.breakOff(send_.destination, send_.id, ControlMessage::kBrokenOff, mailbox_.why_);
  }
}

bool Mailbox::fitsEager(const Outgoing& message) {
  const size_t bytes = message.data.bytes();
  return message.is_ready && bytes <= payload() &&
         lane(message.destination).outstanding + charge(bytes) <= kCredit;
}

void Mailbox::sendWhole(PostedSend& message, const Outgoing& from) {
  Frame frame = message.announcement_;
  frame.type = FrameType::kEager;
  frame.offset = 0;
  frame.bytes = static_cast<uint32_t>(message->bytes);
  write(payloadOf(lane(from.destination).out.slot()), from, 0, frame.bytes);
  publish(message, frame);
}

void Mailbox::announce(PostedSend& message, const Outgoing& from) {
  Frame frame = message.announcement_;
  if (from.offer && segments_.hosts().isHere(from.destination)) {
    message.send_.is_offered = true;
    frame.bytes = sizeof *from.offer;
    std::byte* payload = payloadOf(lane(from.destination).out.slot());
    std::memcpy(payload, &*from.offer, frame.bytes);
    if (store_policy_.isTrial()) {
      write(payload + kSampleAt, from, 0, StorePolicy::kTimed);
    }
    // What was streamed into that memory must be there first.
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  publish(message, frame);
}

size_t Mailbox::sendPart(PostedSend& message, const Outgoing& from, size_t at) {
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
    store_policy_.write(to + place, span.data, span.bytes);
  });
}

void Mailbox::publish(PostedSend& message, const Frame& frame) {
  const int peer = message->destination;
  Lane& to = lane(peer);
  *to.out.slot() = frame;
  sendOff(peer, *to.out.slot());
  const size_t sent = frame.type == FrameType::kAnnounce ? 0 : frame.offset + frame.bytes;
  message.send_.is_sent = sent >= message->bytes;
  if (!to.departing.empty() && to.departing.front() == message->id) {
    nextTurn(to);
  }
}

void Mailbox::sendOff(int peer, Frame& slot) {
  Lane& to = lane(peer);
  slot.written = store_policy_.sendOff(1);
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
    runnable_.push_back(operationOf(to.departing.front()));
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
