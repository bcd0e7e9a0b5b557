#include <utility>

#include "algorithms/Algorithms.hpp"

namespace bluefog {
namespace {

// A Made is fulfilled when the data of an outgoing message has been made.
class Made final : public Awaitable {
 public:
  Made(const MessageOp& op, size_t index) : op_(op), index_(index) {}
  bool ready() override { return op_.outgoing[index_].is_ready; }
  // A task of the operation itself makes it, so nobody has to look meanwhile.
  bool sleeps() const override { return !op_.outgoing[index_].is_ready; }
  std::vector<int> missing() const override { return {}; }
  void await_resume() {}

 private:
  const MessageOp& op_;
  size_t index_;
};

// Returns whether an operation needs its message to be taken. Others do not: a neighbor's operation
// that failed has raised there, and a monitored barrier that failed answers all the same.
bool isOfTwo(OpKind kind) {
  return kind == OpKind::kPointToPoint || kind == OpKind::kWindow;
}

Task send(Mailbox& mailbox, const MessageOp& op, size_t index, SendMode mode) {
  SendProtocol& sends = mailbox.sends();
  // This is looked at anew each time, because detachSends() replaces it by a copy where the
  // operation fails.
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
