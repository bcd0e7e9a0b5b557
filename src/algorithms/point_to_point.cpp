#include <algorithm>

#include "algorithms/Algorithms.hpp"
#include "core/Reduce.hpp"

namespace bluefog {

Script send(Mailbox& mailbox, const Op& op, int destination, int64_t tag, double weight,
            Manners manners) {
  const size_t bytes = op.signature.bytes();
  Frame frame;
  frame.tag = tag;
  frame.weight = weight;
  frame.signature = op.signature;
  Mailbox::Departing message(mailbox, op, destination, frame);
  co_await mailbox.turn(message);
  if (manners == Manners::kMayGoUnasked && mailbox.mayGoAtOnce(destination, op.signature)) {
    frame.type = FrameType::kEager;
    frame.bytes = static_cast<uint32_t>(bytes);
    mailbox.write(destination, op.outgoing, bytes);
    mailbox.publish(message, frame);
    co_return;
  }
  frame.type = FrameType::kAnnounce;
  mailbox.publish(message, frame);
  bool wanted = co_await mailbox.answered(message, op);
  frame.type = FrameType::kData;
  for (size_t at = 0; wanted && at < bytes; at += Mailbox::payload()) {
    wanted = co_await mailbox.room(message);
    if (!wanted) {
      break;
    }
    frame.bytes = static_cast<uint32_t>(std::min(Mailbox::payload(), bytes - at));
    frame.offset = at;
    mailbox.write(destination, op.outgoing + at, frame.bytes);
    mailbox.publish(message, frame);
    co_await Pause();
  }
  // A neighbour's operation that failed has said so there: this rank's own does not need it.
  if (!wanted && op.signature.kind == OpKind::kPointToPoint) {
    throw mailbox.withdrawn(message);
  }
}

Script receive(Mailbox& mailbox, const Op& op, int source, int64_t tag, std::byte* data,
               std::shared_ptr<int> sender) {
  const Mailbox::Expected message = mailbox.expect(op, source, tag);
  co_await mailbox.arrived(*message);
  mailbox.requireSame(*message, op);
  if (message->state == Inbound::State::kHere) {
    copyBytes(data, message->payload.data(), message->payload.size());
  } else {
    mailbox.accept(message, data);
    co_await mailbox.completed(*message);
  }
  *sender = message->source;
}

}  // namespace bluefog
