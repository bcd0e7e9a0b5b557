#include <utility>

#include "algorithms/Algorithms.hpp"

namespace bluefog {
namespace {

// Fulfilled when what is to be sent has been made.
class Made final : public Awaitable {
 public:
  Made(const MessageOp& op, size_t index) : op_(op), index_(index) {}
  bool ready() override { return op_.outgoing[index_].is_ready; }
  // The operation's own task makes it.
  bool sleeps() const override { return !op_.outgoing[index_].is_ready; }
  std::vector<int> missing() const override { return {}; }
  void await_resume() {}

 private:
  const MessageOp& op_;
  size_t index_;
};

// A neighbour's operation that failed has said so there, and a monitored barrier that failed
// answers all the same: this rank's own does not need the message to be taken.
bool isOfTwo(OpKind kind) {
  return kind == OpKind::kPointToPoint || kind == OpKind::kWindow;
}

Task send(Mailbox& mailbox, const MessageOp& op, size_t index, SendMode mode) {
  SendProtocol& sends = mailbox.sends();
  // Looked at anew each time: where the operation fails, it is changed for a copy.
  const auto outgoing = [&op, index]() -> const Outgoing& { return op.outgoing[index]; };
  PostedSend message(sends, op, outgoing());
  co_await sends.turn(message);
  if (mode == SendMode::kEager && sends.fitsEager(outgoing())) {
    sends.sendEager(message, outgoing());
    co_return;
  }
  sends.announce(message, outgoing());
  bool wanted = co_await sends.answer(message, op);
  if (wanted) {
    co_await Made(op, index);
  }
  for (size_t at = 0; wanted && at < outgoing().data.bytes();) {
    wanted = co_await sends.room(message);
    if (wanted) {
      at += sends.stream(message, outgoing(), at);
      co_await Yield();
    }
  }
  if (!wanted && isOfTwo(op.signature.kind)) {
    throw sends.withdrawn(message);
  }
}

}  // namespace

void addSend(Mailbox& mailbox, MessageOp& op, Outgoing message, SendMode mode) {
  op.outgoing.push_back(std::move(message));
  op.tasks.push_back(send(mailbox, op, op.outgoing.size() - 1, mode));
}

Task receive(Mailbox& mailbox, const MessageOp& op, int source, int64_t tag, Span place,
             std::shared_ptr<int> sender) {
  ReceiveProtocol& receives = mailbox.receives();
  const PostedReceive message = receives.post(op, source, tag);
  co_await receives.arrived(*message);
  receives.requireSame(*message, op, place.bytes);
  receives.take(message, place.data);
  co_await receives.completed(*message);
  *sender = message->source;
}

}  // namespace bluefog
