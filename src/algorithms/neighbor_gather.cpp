#include "algorithms/Algorithms.hpp"
#include "core/Reduce.hpp"

namespace bluefog {

Task neighborGather(Mailbox& mailbox, const MessageOp& op, std::vector<int> sources, int64_t tag,
                    Allocate allocate) {
  ReceiveProtocol& receives = mailbox.receives();
  const PostedReceives messages = postReceives(mailbox, op, sources, tag);
  co_await receives.arrived(messages);
  const size_t row = op.signature.bytes();
  std::vector<size_t> sizes;
  if (row == 0) {  // each message is the number of its rows
    sizes.resize(messages.size());
    for (size_t i = 0; i < messages.size(); ++i) {
      receives.requireSame(*messages[i], op, sizeof sizes[i]);
      receives.take(messages[i], reinterpret_cast<std::byte*>(&sizes[i]));
    }
    co_await receives.completed(messages);
    allocate(sizes);
    co_return;
  }
  for (const PostedReceive& message : messages) {
    receives.requireRows(*message, op, row);
    sizes.push_back(message->bytes);
  }
  const std::vector<std::byte*> places = allocate(sizes);
  for (size_t i = 0; i < messages.size(); ++i) {
    receives.take(messages[i], places[i]);
  }
  co_await receives.completed(messages);
}

}  // namespace bluefog
