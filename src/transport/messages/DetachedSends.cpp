#include "transport/messages/DetachedSends.hpp"

#include <deque>
#include <utility>
#include <vector>

#include "transport/operations/blocking.hpp"

namespace bluefog {
namespace {

// The CopiedSends of a failed operation own what its tasks still refer to: the operation itself,
// and copies of what it sends, since the caller has its memory back.
struct CopiedSends {
  // Points the message to a copy. The messages to several ranks have the same bytes, most often,
  // and share one copy.
  void copy(Outgoing& message) {
    if (copies.empty() || !(message.data == original)) {
      original = message.data;
      copies.emplace_back(original.bytes());
      original.forEach(0, original.bytes(), [this](const ConstSpan& span, size_t at) {
        std::copy_n(span.data, span.bytes, copies.back().begin() + static_cast<ptrdiff_t>(at));
      });
    }
    message.data = ConstSpans(ConstSpan{copies.back().data(), copies.back().size()});
  }

  std::shared_ptr<MessageOp> op;
  std::shared_ptr<void> budgeted;
  ConstSpans original = {};  // what the last copy is of
  std::deque<std::vector<std::byte>> copies = {};
};

bool goesOn(const Task& send, const Outgoing& message, const RankSet& gone) {
  return message.is_ready && !send.done() && send.waiting() != nullptr &&
         !lacks(*send.waiting(), gone);
}

size_t bytesToCopy(const MessageOp& op, const std::vector<size_t>& going) {
  size_t bytes = 0;
  const ConstSpans* last = nullptr;
  for (const size_t i : going) {
    const ConstSpans& data = op.outgoing[i].data;
    bytes += last != nullptr && data == *last ? 0 : data.bytes();
    last = &data;
  }
  return bytes;
}

}  // namespace

std::shared_ptr<MessageOp> detachSends(const std::shared_ptr<MessageOp>& op, const RankSet& gone,
                                       const CopyBudget& budget) {
  std::vector<size_t> going;
  for (size_t i = 0; i < op->outgoing.size(); ++i) {
    if (goesOn(op->tasks[i], op->outgoing[i], gone)) {
      going.push_back(i);
    }
  }
  if (going.empty()) {
    return nullptr;
  }
  std::shared_ptr<CopiedSends> copied;
  if (op->role != OpRole::kDetached) {
    const size_t bytes = bytesToCopy(*op, going);
    if (bytes > budget.left()) {
      return nullptr;
    }
    copied = std::make_shared<CopiedSends>(CopiedSends{op, budget.take(bytes)});
  }
  auto detached = std::make_shared<MessageOp>(op->signature, op->deadline, OpRole::kDetached);
  for (const size_t i : going) {
    if (copied) {
      copied->copy(op->outgoing[i]);
    }
    detached->tasks.push_back(std::move(op->tasks[i]));
    detached->outgoing.push_back(op->outgoing[i]);
  }
  detached->sequence = op->sequence;
  detached->number = op->number;
  detached->memory = copied ? copied : op->memory;
  return detached;
}

}  // namespace bluefog
