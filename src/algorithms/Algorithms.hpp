#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "algorithms/PostedReceives.hpp"
#include "core/Spans.hpp"
#include "transport/boards/Board.hpp"
#include "transport/messages/Mailbox.hpp"
#include "transport/operations/CollectiveOp.hpp"
#include "transport/operations/MessageOp.hpp"
#include "transport/operations/Task.hpp"

namespace bluefog {

// The algorithms, one per file, as tasks over raw memory: no torch here. `op` says
// what is called (element type, count, reduction, root) and outlives the task, and so does the
// memory. Every rank of a collective publishes at least one frame in it, so that every rank sees
// what every other one called.

// In place. `returns` is the group's second board here and below.
Task allreduce(Board& board, Board& returns, const CollectiveOp& op, Spans data);

// In place, from the signature's root.
Task broadcast(Board& board, Board& returns, const CollectiveOp& op, std::byte* data);

// outputs[r] gets the bytes[r] bytes of rank r. `input` may be outputs[own rank].
Task allgather(Board& board, Board& returns, const CollectiveOp& op, const std::byte* input,
               std::vector<std::byte*> outputs, std::vector<size_t> bytes);

// `output` gets the reduction over all ranks of their inputs[own rank], which has
// counts[own rank] elements. `output` may be inputs[own rank].
Task reduceScatter(Board& board, Board& returns, const CollectiveOp& op,
                   std::vector<const std::byte*> inputs, std::vector<size_t> counts,
                   std::byte* output);

// `output` of the signature's root gets the reduction over all ranks of their inputs; the others'
// may be null. `output` may be `input`.
Task reduce(Board& board, const CollectiveOp& op, const std::byte* input, std::byte* output);

// What one rank has for another, or wants from it.
struct SendBlock {
  const std::byte* data;
  size_t bytes;
};
struct RecvBlock {
  std::byte* data;
  size_t bytes;
};
// Every rank sends blocks[r] to rank r, and gets into places[r] what rank r sends to it.
// Throws a mismatch where one sends another size than the other expects. The own block may lie
// at the own place.
Task exchange(Board& board, const CollectiveOp& op, std::vector<SendBlock> blocks,
              std::vector<RecvBlock> places);

Task barrier(Board& board, const CollectiveOp& op);

// A message that asks first is not taken by a receiver that comes when its operation has ended.
enum class SendMode { kEager, kRendezvous };

// Has the operation send this: to be called before it gets other tasks.
void addSend(Mailbox& mailbox, MessageOp& op, Outgoing message, SendMode mode = SendMode::kEager);

// `source` may be kAnySource; *sender gets who it was.
Task receive(Mailbox& mailbox, const MessageOp& op, int source, int64_t tag, Span place,
             std::shared_ptr<int> sender);

struct WeightedRank {
  int rank;
  double weight;
};
std::vector<int> ranksOf(const std::vector<WeightedRank>& weighted);

// What a rank adds to a sum, and where the sum goes.
struct SumPiece {
  const std::byte* input;
  std::byte* output;
  size_t bytes;
  Dtype dtype;

  SumPiece part(size_t at, size_t length) const { return {input + at, output + at, length, dtype}; }
  bool isFollowedBy(const SumPiece& other) const {
    return dtype == other.dtype && input + bytes == other.input && output + bytes == other.output;
  }
};

// output = (self_weight * input + sum of weight_i * (what rank i sends)) / divisor. The terms are
// added in the order of `sources`, this rank's before the first of a higher number: where all add
// up the same, all get the same bits. No element may lie across a multiple of Lane::payload()
// bytes: those of wider types go first.
struct NeighborSum {
  double self_weight = 1.0;
  std::vector<WeightedRank> sources;
  double divisor = 1.0;
  SegmentList<SumPiece> pieces;
  // Whether large messages are added as they stream. Not where they are announced before they are
  // made: others, of other operations, would wait behind them, and these perhaps for those.
  bool streams = true;
};

// One pass: the sum is formed as the peers' memory streams by. `early`: where the operation already
// expects the messages.
Task neighborSum(Mailbox& mailbox, const MessageOp& op, NeighborSum sum, int64_t tag,
                 PostedReceives early = {});

// Where to put messages of those lengths, in bytes.
using Allocate = std::function<std::vector<std::byte*>(const std::vector<size_t>& bytes)>;

// Takes one message from each of the sources, of any number of the signature's rows.
Task neighborGather(Mailbox& mailbox, const MessageOp& op, std::vector<int> sources, int64_t tag,
                    Allocate allocate);

// A rank tells another one by this what the two exchange by other means.
struct Notice {
  uint64_t exchange = 0;  // how many there are of the two, with this one
  int64_t rows = 0;       // that it sends
  uint64_t sends = 0;     // whether it does
  uint64_t receives = 0;  // whether it does

  Outgoing to(int destination, int64_t tag) const {
    return {destination, tag,
            ConstSpans(ConstSpan{reinterpret_cast<const std::byte*>(this), sizeof *this})};
  }
};

// Takes the source's, which calls the same, by the signature.
Task takeNotice(Mailbox& mailbox, const MessageOp& op, int source, int64_t tag, Notice& notice);

// What a rank has to do with the ranks of its machine, and with its counterparts on other machines.
struct Hierarchy {
  std::vector<int> locals;  // the ranks of the machine, ascending
  int local_rank = 0;
  double divisor = 1.0;               // of the sum over the machine
  NeighborSum between;                // of which `pieces` are left out
  std::vector<WeightedRank> outward;  // counterparts that get this machine's sum
};

// output = what `between` says, where each rank has its machine's sum / divisor. The ranks of a
// machine form a part of it each, and hand it out. `part` has room for this rank's. Adds all
// tasks to the operation.
void addHierarchicalSum(Mailbox& mailbox, MessageOp& op, Hierarchy hierarchy,
                        const std::byte* input, std::byte* part, std::byte* output, int64_t tag);
// Elements of the largest part.
size_t largestPart(size_t count, size_t locals);

}  // namespace bluefog
