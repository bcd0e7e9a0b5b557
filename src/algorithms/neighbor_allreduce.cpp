#include <algorithm>
#include <utility>

#include "algorithms/Terms.hpp"
#include "core/Reduce.hpp"
#include "transport/tuning/Tuning.hpp"

namespace bluefog {
namespace {

// An Adder adds up this rank's input and what its neighbors have sent, stretch by stretch of the
// result. The sum, the mailbox and the messages must outlive it.
class Adder {
 public:
  Adder(const NeighborSum& sum, Mailbox& mailbox, const PostedReceives& messages, Stores stores)
      : sum_(sum), mailbox_(mailbox), messages_(messages), stores_(stores) {}

  // Adds up `bytes` bytes from `at` on. bytesOf(i) returns where these lie of message i.
  template <class BytesOf>
  void add(size_t at, size_t bytes, const BytesOf& bytesOf) {
    sum_.pieces.forEach(at, bytes, [&](const SumPiece& piece, size_t place) {
      inputs_.clear();
      weights_.clear();
      const auto take = [this](const void* input, double weight) {
        inputs_.push_back(input);
        weights_.push_back(weight);
      };
      forEachTerm(
          sum_.sources, sum_.self_weight, mailbox_.rank(),
          [this](size_t i) { return messages_[i]->weight; },
          [&](double weight) { take(piece.input, weight); },
          [&](size_t i, double weight) { take(bytesOf(i) + place, weight); });
      weightedSum(piece.dtype, piece.output, inputs_, weights_, sum_.divisor,
                  piece.bytes / width(piece.dtype), stores_);
      mailbox_.counters().addTouched(messages_.size() * piece.bytes, piece.bytes);
    });
  }

 private:
  const NeighborSum& sum_;
  Mailbox& mailbox_;
  const PostedReceives& messages_;
  const Stores stores_;
  std::vector<const void*> inputs_;
  std::vector<double> weights_;
};

using Places = std::vector<const std::byte*>;

// Returns where the messages lie in their senders' heaps; empty unless all of them can be read
// there.
Places offeredBy(Mailbox& mailbox, const PostedReceives& messages) {
  Places places;
  for (const PostedReceive& message : messages) {
    places.push_back(mailbox.reads().find(*message));
    if (places.back() == nullptr) {
      return {};
    }
  }
  return places;
}

bool areStillOffered(const SharedMemoryReads& reads, const PostedReceives& messages) {
  return std::all_of(messages.begin(), messages.end(),
                     [&](const PostedReceive& message) { return reads.isStillOffered(*message); });
}

}  // namespace

std::vector<int> ranksOf(const std::vector<WeightedRank>& weighted) {
  std::vector<int> ranks;
  ranks.reserve(weighted.size());
  for (const WeightedRank& it : weighted) {
    ranks.push_back(it.rank);
  }
  return ranks;
}

Task neighborSum(Mailbox& mailbox, const MessageOp& op, NeighborSum sum, int64_t tag,
                 PostedReceives early) {
  ReceiveProtocol& receives = mailbox.receives();
  const PostedReceives messages =
      early.empty() ? postReceives(mailbox, op, ranksOf(sum.sources), tag) : std::move(early);
  const size_t bytes = sum.pieces.bytes();
  co_await receives.arrived(messages);
  for (const PostedReceive& message : messages) {
    receives.requireSame(*message, op, bytes);
  }
  if (const Places offered = sum.streams ? offeredBy(mailbox, messages) : Places();
      !offered.empty()) {
    Adder adder(sum, mailbox, messages, mailbox.reads().storesFor(bytes));
    for (size_t at = 0; at < bytes; at += tuning::kSumStretch) {
      adder.add(at, std::min(tuning::kSumStretch, bytes - at),
                [&](size_t i) { return offered[i] + at; });
      co_await Yield();
    }
    if (areStillOffered(mailbox.reads(), messages)) {
      for (const PostedReceive& message : messages) {
        mailbox.reads().finish(*message);
      }
      co_await receives.controlFlushed(messages);
      co_return;
    }
  }
  Adder adder(sum, mailbox, messages, storesForAverage(bytes));
  if (messages.empty() || bytes <= Lane::payload() || !sum.streams) {
    std::vector<const ReceiveState*> announced;
    for (const PostedReceive& message : messages) {
      if (message->stage == ReceiveState::Stage::kAnnounced) {
        message->payload.resize(bytes);
        receives.accept(message, message->payload.data());
        announced.push_back(&*message);
      }
    }
    for (const ReceiveState* message : announced) {
      co_await receives.completed(*message);
    }
    adder.add(0, bytes, [&](size_t i) { return messages[i]->payload.data(); });
    co_return;
  }
  const auto lock = co_await receives.interleaveLock();
  for (const PostedReceive& message : messages) {
    receives.accept(message, nullptr);
  }
  for (size_t at = 0; at < bytes; at += Lane::payload()) {
    co_await receives.nextFrames(messages);
    adder.add(at, std::min(Lane::payload(), bytes - at),
              [&](size_t i) { return receives.frontPayload(*messages[i]); });
    for (const PostedReceive& message : messages) {
      receives.popFrame(*message);
    }
    co_await Yield();
  }
}

}  // namespace bluefog
