#include <algorithm>
#include <utility>

#include "algorithms/Algorithms.hpp"

namespace bluefog {
namespace {

// The operation sends two messages to each rank of its machine, and one to each counterpart.
constexpr Phase kInward = Phase::kFirst;
constexpr Phase kBetween = Phase::kOnly;
constexpr Phase kHandOut = Phase::kSecond;

// Shares are the parts of a tensor that the ranks of a machine work on.
class Shares {
 public:
  Shares(const Signature& signature, size_t n)
      : count_(signature.count), width_(width(signature.dtype)), n_(n) {}

  // Returns where in the tensor the share of that local rank begins, in bytes.
  size_t at(size_t index) const { return index * count_ / n_ * width_; }
  size_t bytes(size_t index) const { return at(index + 1) - at(index); }

 private:
  size_t count_;
  size_t width_;
  size_t n_;
};

// Lets the messages of that phase go, whose data has been made.
void makeReady(MessageOp& op, Phase phase) {
  for (Outgoing& message : op.outgoing) {
    message.is_ready |= message.phase == phase;
  }
}

Task hierarchicalSum(Mailbox& mailbox, MessageOp& op, Hierarchy machine, const std::byte* input,
                     std::byte* part, std::byte* output, int64_t tag) {
  ReceiveProtocol& receives = mailbox.receives();
  const auto self = static_cast<size_t>(machine.local_rank);
  const Shares shares(op.signature, machine.locals.size());
  std::vector<int> others = machine.locals;
  others.erase(others.begin() + machine.local_rank);

  PostedReceives inward = postReceives(mailbox, op, others, tag);
  PostedReceives between = postReceives(mailbox, op, ranksOf(machine.between.sources), tag);
  co_await receives.arrived(inward);
  PostedReceives handed_out;
  for (const PostedReceive& message : inward) {
    receives.requireSame(*message, op);
    handed_out.push_back(receives.postSecond(*message));
  }

  const Dtype dtype = op.signature.dtype;
  const size_t at = shares.at(self);
  const size_t bytes = shares.bytes(self);
  NeighborSum within;
  within.divisor = machine.divisor;
  within.pieces.add({input + at, part, bytes, dtype});
  for (const int other : others) {
    within.sources.push_back({other, 1.0});
  }
  co_await Join(neighborSum(mailbox, op, std::move(within), 0, std::move(inward)));
  makeReady(op, kBetween);

  machine.between.streams = false;
  machine.between.pieces.add({part, output + at, bytes, dtype});
  co_await Join(neighborSum(mailbox, op, std::move(machine.between), 0, std::move(between)));
  makeReady(op, kHandOut);

  co_await receives.arrived(handed_out);
  for (size_t i = 0; i < others.size(); ++i) {
    const size_t index = i < self ? i : i + 1;
    receives.requireSame(*handed_out[i], op, shares.bytes(index));
    receives.take(handed_out[i], output + shares.at(index));
  }
  co_await receives.completed(handed_out);
}

}  // namespace

size_t largestPart(size_t count, size_t locals) {
  return (count + locals - 1) / locals;
}

void addHierarchicalSum(Mailbox& mailbox, MessageOp& op, Hierarchy hierarchy,
                        const std::byte* input, std::byte* part, std::byte* output, int64_t tag) {
  const Shares shares(op.signature, hierarchy.locals.size());
  const auto self = static_cast<size_t>(hierarchy.local_rank);
  const auto add = [&](int rank, Phase phase, ConstSpan data, double weight) {
    addSend(mailbox, op, {rank, tag, ConstSpans(data), weight, phase, phase == kInward});
  };
  for (size_t i = 0; i < hierarchy.locals.size(); ++i) {
    if (i != self) {
      add(hierarchy.locals[i], kInward, {input + shares.at(i), shares.bytes(i)}, 1.0);
    }
  }
  for (const WeightedRank& counterpart : hierarchy.outward) {
    add(counterpart.rank, kBetween, {part, shares.bytes(self)}, counterpart.weight);
  }
  for (size_t i = 0; i < hierarchy.locals.size(); ++i) {
    if (i != self) {
      add(hierarchy.locals[i], kHandOut, {output + shares.at(self), shares.bytes(self)}, 1.0);
    }
  }
  op.tasks.push_back(hierarchicalSum(mailbox, op, std::move(hierarchy), input, part, output, tag));
}

}  // namespace bluefog
