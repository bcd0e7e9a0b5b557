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
  // Looked at anew each time: where the operation fails, it is changed for a copy.
  const auto outgoing = [&op, index]() -> const Outgoing& { return op.outgoing[index]; };
  Mailbox::PostedSend message(mailbox, op, outgoing());
  co_await mailbox.turn(message);
  if (mode == SendMode::kEager && mailbox.fitsEager(outgoing())) {
    mailbox.sendWhole(message, outgoing());
    co_return;
  }
  mailbox.announce(message, outgoing());
  bool wanted = co_await mailbox.answered(message, op);
  if (wanted) {
    co_await Made(op, index);
  }
  for (size_t at = 0; wanted && at < outgoing().data.bytes();) {
    wanted = co_await mailbox.room(message);
    if (wanted) {
      at += mailbox.sendPart(message, outgoing(), at);
      co_await Yield();
    }
  }
  if (!wanted && isOfTwo(op.signature.kind)) {
    throw mailbox.withdrawn(message);
  }
}

}  // namespace

void addSend(Mailbox& mailbox, MessageOp& op, Outgoing message, SendMode mode) {
  op.outgoing.push_back(std::move(message));
  op.tasks.push_back(send(mailbox, op, op.outgoing.size() - 1, mode));
}

Task receive(Mailbox& mailbox, const MessageOp& op, int source, int64_t tag, Span place,
             std::shared_ptr<int> sender) {
  const Mailbox::PostedReceive message = mailbox.expect(op, source, tag);
  co_await mailbox.arrived(*message);
  mailbox.requireSame(*message, op, place.bytes);
  mailbox.take(message, place.data);
  co_await mailbox.completed(*message);
  *sender = message->source;
}

}  // namespace bluefog
