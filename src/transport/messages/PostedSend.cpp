#include "transport/messages/PostedSend.hpp"

#include "transport/messages/SendProtocol.hpp"

namespace bluefog {

PostedSend::PostedSend(SendProtocol& protocol, const MessageOp& op, const Outgoing& message)
    : protocol_(protocol) {
  send_.destination = message.destination;
  send_.id = messageId(op.sequence, message.phase);
  send_.bytes = message.data.bytes();
  announcement_.type = FrameType::kAnnounce;
  announcement_.id = send_.id;
  announcement_.tag = message.phase == Phase::kSecond
                          ? static_cast<int64_t>(messageId(op.sequence, Phase::kFirst))
                          : message.tag;
  announcement_.offset = send_.bytes;
  announcement_.weight = message.weight;
  announcement_.signature = op.signature;
  announcement_.number = op.number;
  protocol_.enqueue(*this);
}

PostedSend::~PostedSend() {
  protocol_.release(*this);
}

}  // namespace bluefog
