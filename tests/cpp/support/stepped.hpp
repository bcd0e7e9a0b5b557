#pragma once

#include <unistd.h>

#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "support/processes.hpp"
#include "support/ranks.hpp"
#include "transport/memory/SharedHeap.hpp"

namespace bluefog::testing {

// LinksOfOne holds the links of rank 1 of three. Its peers die when the test says so.
struct LinksOfOne {
  LinksOfOne() {
    for (int peer : {0, 2}) {
      auto [here, there] = socketPair();
      links.add(peer, std::move(here), ::getpid());
      lives_[static_cast<size_t>(peer)] = std::move(there);
    }
  }
  void die(int rank) { lives_[static_cast<size_t>(rank)] = Fd(); }

  Links links{4};

 private:
  std::array<Fd, 3> lives_;
};

// A SteppedRank is one rank of a group in this process, which the test drives step by step.
// Thread safety: one thread at a time.
class SteppedRank {
 public:
  SteppedRank(const Fd& memory, int rank, int size, Links links)
      : members(membership(rank, size)),
        segments(std::make_shared<const Segments>(Segment(memory, size), rank)),
        heap(SharedHeap::make(segments->shared(), rank)),
        scheduler(segments, members, std::move(links), nullptr) {}

  // Starts a sum of what the sources send. Where `input` lies in the heap, it is offered to the
  // destinations.
  MessageOpPtr average(ConstSpan input, Span output, const std::vector<int>& sources,
                       const std::vector<int>& destinations) {
    return average(input, output, sources, destinations, heap->placeOf(input.data, input.bytes));
  }
  MessageOpPtr average(ConstSpan input, Span output, const std::vector<int>& sources,
                       const std::vector<int>& destinations, std::optional<uint64_t> offer,
                       Deadline deadline = Deadline::in(std::chrono::minutes(1))) {
    const MessageOpPtr op = call(OpKind::kNeighborAllReduce, input.bytes / sizeof(float), deadline);
    auto phase = static_cast<int>(Phase::kOnly);
    for (int rank : destinations) {  // a test has one of them twice
      Outgoing message{rank, 0, ConstSpans(input), 1.0, static_cast<Phase>(phase++)};
      message.offer = offer;
      addSend(scheduler.mailbox(), *op, std::move(message));
    }
    std::vector<WeightedRank> weighted;
    for (int rank : sources) {
      weighted.push_back({rank, 1});
    }
    const SumPiece piece{input.data, output.data, input.bytes, Dtype::kFloat32};
    op->tasks.push_back(
        neighborSum(scheduler.mailbox(), *op, {0, weighted, 1, SegmentList<SumPiece>(piece)}, 0));
    scheduler.add(op);
    return op;
  }
  // Makes an operation on floats that has no tasks.
  MessageOpPtr call(OpKind kind, size_t count,
                    Deadline deadline = Deadline::in(std::chrono::minutes(1))) {
    auto op = std::make_shared<MessageOp>(signatureOf<float>(kind, count), deadline);
    op->sequence = ++issued_;
    if (isBetweenNeighbors(kind)) {
      op->counter = Counter();
      op->number = ++calls_;
    }
    return op;
  }
  // Ticks twice: the first tick sees who is gone, and the second one ends what needs them.
  void tick() {
    for (int look = 0; look < 2; ++look) {
      scheduler.tick(Deadline::Clock::now());
    }
  }

  Membership members;
  std::shared_ptr<const Segments> segments;
  std::shared_ptr<SharedHeap> heap;
  Scheduler scheduler;

 private:
  uint64_t issued_ = 0;
  uint64_t calls_ = 0;
};

}  // namespace bluefog::testing
