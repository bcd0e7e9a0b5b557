#include "transport/Remainder.hpp"

#include "transport/Needs.hpp"

namespace bluefog {
namespace {

std::shared_ptr<void> keepOutgoing(const std::shared_ptr<Op>& op) {
  struct Kept {
    std::shared_ptr<Op> op;  // its scripts refer to it
    std::vector<std::byte> data;
  };
  auto kept =
      std::make_shared<Kept>(Kept{op, {op->outgoing, op->outgoing + op->signature.bytes()}});
  op->outgoing = kept->data.data();
  return kept;
}

}  // namespace

std::shared_ptr<Op> remainderOf(const std::shared_ptr<Op>& op, const RankSet& gone) {
  auto rest = std::make_shared<Op>(op->kind, op->signature, op->deadline);
  for (size_t i = 0; i < op->sends; ++i) {
    Script& send = op->scripts[i];
    if (!send.done() && send.waiting() != nullptr && !lacks(*send.waiting(), gone)) {
      rest->scripts.push_back(std::move(send));
    }
  }
  if (rest->scripts.empty()) {
    return nullptr;
  }
  rest->sends = rest->scripts.size();
  rest->sequence = op->sequence;
  rest->is_remainder = true;
  rest->memory = op->is_remainder ? op->memory : keepOutgoing(op);
  return rest;
}

}  // namespace bluefog
