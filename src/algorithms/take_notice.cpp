#include "algorithms/Algorithms.hpp"

namespace bluefog {

Task takeNotice(Mailbox& mailbox, const MessageOp& op, int source, int64_t tag, Notice& notice) {
  ReceiveProtocol& receives = mailbox.receives();
  const PostedReceives messages = postReceives(mailbox, op, {source}, tag);
  co_await receives.arrived(messages);
  const PostedReceive& message = messages.front();
  receives.requireSame(*message, op, sizeof notice);
  receives.take(message, reinterpret_cast<std::byte*>(&notice));
  co_await receives.completed(messages);
}

}  // namespace bluefog
