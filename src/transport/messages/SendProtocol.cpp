#include "transport/messages/SendProtocol.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "transport/messages/MessageFailures.hpp"

namespace bluefog {

void SendProtocol::enqueue(PostedSend& message) {
  Lane& to = state_.lane(message->destination);
  to.departing.push_back(message->id);
  to.unanswered.emplace(message->id, &message.send_);
}

void SendProtocol::release(const PostedSend& message) {
  const SendState& send = *message;
  Lane& to = state_.lane(send.destination);
  if (send.is_offered && send.answer.kind == ControlMessage::kNone) {
    reads_.endOffers(send.destination, send.id);
  }
  to.unanswered.erase(send.id);
  if (!to.departing.empty() && to.departing.front() <= send.id) {
    to.canceled.emplace(send.id, Lane::CanceledSend{message.announcement_, state_.cancel_reason});
  } else if (!send.is_sent && send.answer.kind <= ControlMessage::kClearToSend) {
    control_.cancel(send.destination, send.id, ControlMessage::kBrokenOff, state_.cancel_reason);
  }
}

bool SendProtocol::fitsEager(const Outgoing& message) const {
  const size_t bytes = message.data.bytes();
  return message.is_ready && bytes <= Lane::payload() &&
         flow_.hasCredit(message.destination, bytes);
}

void SendProtocol::sendEager(PostedSend& message, const Outgoing& from) {
  Frame frame = message.announcement_;
  frame.type = FrameType::kEager;
  frame.offset = 0;
  frame.bytes = static_cast<uint32_t>(message->bytes);
  write(payloadOf(state_.lane(from.destination).out.slot()), from, 0, frame.bytes);
  publish(message, frame);
}

void SendProtocol::announce(PostedSend& message, const Outgoing& from) {
  Frame frame = message.announcement_;
  if (from.offer && state_.segments.hosts().isHere(from.destination)) {
    message.send_.is_offered = true;
    frame.bytes = sizeof *from.offer;
    std::byte* payload = payloadOf(state_.lane(from.destination).out.slot());
    std::memcpy(payload, &*from.offer, frame.bytes);
    if (state_.store_policy.isTrial()) {
      write(payload + Lane::kSampleAt, from, 0, StorePolicy::kTimed);
    }
    // Streaming stores to that memory must be visible before the receiver reads it.
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  publish(message, frame);
}

size_t SendProtocol::stream(PostedSend& message, const Outgoing& from, size_t at) {
  Frame frame = message.announcement_;
  frame.type = FrameType::kData;
  frame.offset = at;
  frame.bytes = static_cast<uint32_t>(std::min(Lane::payload(), message->bytes - at));
  write(payloadOf(state_.lane(from.destination).out.slot()), from, at, frame.bytes);
  publish(message, frame);
  return frame.bytes;
}

Failure SendProtocol::withdrawn(const PostedSend& message) const {
  return canceledBy(state_.members, message->destination, message->answer.cancel_reason);
}

bool SendProtocol::maySendNow(int destination, size_t bytes) {
  Lane& to = state_.lane(destination);
  return to.departing.empty() && flow_.hasCredit(destination, bytes) && to.out.room();
}

void SendProtocol::sendNow(int destination, const Frame& frame, ConstSpan data) {
  Frame& slot = *state_.lane(destination).out.slot();
  slot = frame;
  state_.store_policy.write(payloadOf(&slot), data.data, data.bytes);
  publishSlot(destination, slot);
}

bool SendProtocol::noteAnswer(int peer, const ControlMessage& answer) {
  Lane& to = state_.lane(peer);
  const auto found = to.unanswered.find(answer.id);
  if (found == to.unanswered.end()) {
    return false;
  }
  found->second->answer = answer;
  if (answer.kind == ControlMessage::kFinished) {
    state_.counters.addSent(found->second->bytes);
  }
  state_.runnable.push_back(operationOf(answer.id));
  return true;
}

bool SendProtocol::announceCanceled(int peer) {
  Lane& to = state_.lane(peer);
  bool moved = false;
  while (!to.canceled.empty() && to.canceled.begin()->first == to.departing.front() &&
         to.out.room()) {
    const Lane::CanceledSend& message = to.canceled.begin()->second;
    *to.out.slot() = message.announcement;
    to.out.publish();
    control_.cancel(peer, to.departing.front(), ControlMessage::kBrokenOff, message.why);
    to.canceled.erase(to.canceled.begin());
    nextTurn(to);
    state_.wakeups.add(peer);
    moved = true;
  }
  return moved;
}

bool SendProtocol::hasSentFirsts() const {
  return std::all_of(state_.lanes.begin(), state_.lanes.end(),
                     [](const Lane& lane) { return lane.is_gone || lane.departing.empty(); });
}

void SendProtocol::write(std::byte* to, const Outgoing& from, size_t at, size_t bytes) {
  from.data.forEach(at, bytes, [&](const ConstSpan& span, size_t place) {
    state_.store_policy.write(to + place, span.data, span.bytes);
  });
}

void SendProtocol::publish(PostedSend& message, const Frame& frame) {
  const int peer = message->destination;
  Lane& to = state_.lane(peer);
  *to.out.slot() = frame;
  publishSlot(peer, *to.out.slot());
  const size_t sent = frame.type == FrameType::kAnnounce ? 0 : frame.offset + frame.bytes;
  message.send_.is_sent = sent >= message->bytes;
  if (!to.departing.empty() && to.departing.front() == message->id) {
    nextTurn(to);
  }
}

void SendProtocol::publishSlot(int peer, Frame& slot) {
  slot.written = state_.store_policy.sendOff(1);
  if (slot.type == FrameType::kEager) {
    flow_.chargeSend(peer, slot.bytes);
  }
  if (slot.type != FrameType::kAnnounce) {
    state_.counters.addSent(slot.bytes);
  }
  state_.lane(peer).out.publish();
  state_.wakeups.add(peer);
}

void SendProtocol::nextTurn(Lane& to) {
  to.departing.pop_front();
  if (!to.departing.empty()) {
    state_.runnable.push_back(operationOf(to.departing.front()));
  }
}

}  // namespace bluefog
