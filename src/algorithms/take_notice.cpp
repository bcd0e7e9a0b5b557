#include "algorithms/Algorithms.hpp"

namespace bluefog {

Task takeNotice(Mailbox& mailbox, const MessageOp& op, int source, int64_t tag, Notice& notice) {
  const Expectations messages = expectFrom(mailbox, op, {source}, tag);
  co_await mailbox.arrived(messages);
  const Mailbox::PostedReceive& message = messages.front();
  mailbox.requireSame(*message, op, sizeof notice);
  mailbox.take(message, reinterpret_cast<std::byte*>(&notice));
  co_await mailbox.completed(messages);
}

}  // namespace bluefog
