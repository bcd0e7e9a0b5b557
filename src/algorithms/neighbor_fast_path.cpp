#include <algorithm>

#include "algorithms/NeighborFastPath.hpp"
#include "algorithms/Terms.hpp"
#include "core/Reduce.hpp"

namespace bluefog {

bool NeighborFastPath::maySend(Mailbox& mailbox) const {
  return std::all_of(call_.destinations.begin(), call_.destinations.end(), [&](const auto& it) {
    return mailbox.sends().maySendNow(it.rank, call_.signature.bytes());
  });
}

void NeighborFastPath::send(Mailbox& mailbox, uint64_t sequence, uint64_t number) {
  number_ = number;
  const size_t bytes = call_.signature.bytes();
  Frame frame;
  frame.type = FrameType::kEager;
  frame.bytes = bytes;
  frame.number = number;
  frame.id = messageId(sequence);
  frame.tag = call_.counter.tag;
  frame.signature = call_.signature;
  for (const WeightedRank& destination : call_.destinations) {
    frame.weight = destination.weight;
    mailbox.sends().sendNow(destination.rank, frame, {call_.input, bytes});
  }
}

bool NeighborFastPath::receive(Mailbox& mailbox) {
  const std::vector<WeightedRank>& sources = call_.sources;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (frames_[i] == nullptr) {
      const MatchKey key{call_.counter.kind, call_.counter.tag, number_};
      frames_[i] = mailbox.receives().front(sources[i].rank, call_.signature, key);
      if (frames_[i] == nullptr) {
        return false;
      }
    }
  }
  std::array<const void*, kMost + 1> inputs;
  std::array<double, kMost + 1> weights;
  size_t n = 0;
  const auto take = [&](const void* input, double weight) {
    inputs[n] = input;
    weights[n++] = weight;
  };
  forEachTerm(
      sources, call_.self_weight, mailbox.rank(), [this](size_t i) { return frames_[i]->weight; },
      [&](double weight) { take(call_.input, weight); },
      [&](size_t i, double weight) { take(payloadOf(frames_[i]), weight); });
  const size_t bytes = call_.signature.bytes();
  weightedSum(call_.signature.dtype, call_.output, {inputs.data(), n}, {weights.data(), n},
              call_.divisor, call_.signature.count, Stores::kCached);
  mailbox.counters().addTouched(sources.size() * bytes, bytes);
  for (size_t i = 0; i < sources.size(); ++i) {
    mailbox.receives().popFront(sources[i].rank, bytes);
  }
  return true;
}

}  // namespace bluefog
