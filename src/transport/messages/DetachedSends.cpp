#include "transport/messages/DetachedSends.hpp"

#include <deque>
#include <utility>
#include <vector>

#include "transport/operations/blocking.hpp"

namespace bluefog {
namespace {

// What the tasks of an operation refer to, when its caller has its memory back.
struct Kept {
  explicit Kept(std::shared_ptr<Op> failed) : op(std::move(failed)) {}

  // The same bytes go to several ranks, most often.
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

  std::shared_ptr<Op> op;
  ConstSpans original;  // of the last copy
  std::deque<std::vector<std::byte>> copies;
};

bool goesOn(const Task& send, const Outgoing& message, const RankSet& gone) {
  return message.is_ready && !send.done() && send.waiting() != nullptr &&
         !lacks(*send.waiting(), gone);
}

size_t bytesToCopy(const Op& op, const std::vector<size_t>& going) {
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

std::shared_ptr<Op> detachSends(const std::shared_ptr<Op>& op, const RankSet& gone, size_t room) {
  std::vector<size_t> going;
  for (size_t i = 0; i < op->outgoing.size(); ++i) {
    if (goesOn(op->tasks[i], op->outgoing[i], gone)) {
      going.push_back(i);
    }
  }
  const size_t bytes = op->is_detached ? op->copied_bytes : bytesToCopy(*op, going);
  if (going.empty() || (!op->is_detached && bytes > room)) {
    return nullptr;
  }
  auto detached = std::make_shared<Op>(op->kind, op->signature, op->deadline);
  auto kept = op->is_detached ? nullptr : std::make_shared<Kept>(op);
  for (const size_t i : going) {
    if (kept) {
      kept->copy(op->outgoing[i]);
    }
    detached->tasks.push_back(std::move(op->tasks[i]));
    detached->outgoing.push_back(op->outgoing[i]);
  }
  detached->sequence = op->sequence;
  detached->number = op->number;
  detached->is_detached = true;
  detached->memory = kept ? kept : op->memory;
  detached->copied_bytes = bytes;
  return detached;
}

}  // namespace bluefog
