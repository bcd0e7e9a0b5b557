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

// This header declares the algorithms, one per file, as tasks over raw memory, without torch. `op`
// says what is called: element type, count, reduction and root. The operation, the memory, the
// boards and the mailbox must outlive the task. Every rank of a collective publishes at least one
// frame in it, so that every rank sees what every other one has called.
//
// Thread safety: one thread makes the tasks of an operation before it is posted; only the thread
// that drives the engine may advance them.

// Reduces the data of all ranks, in place. `returns` is the group's second board here and below.
Task allreduce(Board& board, Board& returns, const CollectiveOp& op, Spans data);

// Copies the data of the signature's root to all ranks.
Task broadcast(Board& board, Board& returns, const CollectiveOp& op, std::byte* data);

// Copies the bytes[r] bytes that rank r gives into outputs[r]. `input` may be outputs[own rank].
Task allgather(Board& board, Board& returns, const CollectiveOp& op, const std::byte* input,
               std::vector<std::byte*> outputs, std::vector<size_t> bytes);

// Reduces what all ranks have in their inputs[r] into the `output` of rank r, for each rank r. That
// has counts[r] elements. `output` may be inputs[own rank].
Task reduceScatter(Board& board, Board& returns, const CollectiveOp& op,
                   std::vector<const std::byte*> inputs, std::vector<size_t> counts,
                   std::byte* output);

// Reduces the inputs of all ranks into the `output` of the signature's root. The other ranks'
// `output` may be null. `output` may be `input`.
Task reduce(Board& board, const CollectiveOp& op, const std::byte* input, std::byte* output);

// A SendBlock is what a rank has for another one; a RecvBlock is where it wants the block of
// another one. They do not own the memory.
struct SendBlock {
  const std::byte* data;
  size_t bytes;
};
struct RecvBlock {
  std::byte* data;
  size_t bytes;
};
// Sends blocks[r] to each rank r, and takes into places[r] what rank r sends. The task throws a
// mismatch where a rank sends another size than the receiver expects. The rank's own block may lie
// at its own place.
Task exchange(Board& board, const CollectiveOp& op, std::vector<SendBlock> blocks,
              std::vector<RecvBlock> places);

// Ends when all ranks have called it.
Task barrier(Board& board, const CollectiveOp& op);

// A message that goes by rendezvous is not taken by a receiver that comes after its operation has
// ended. An eager one may be.
enum class SendMode { kEager, kRendezvous };

// Adds a message to an operation, with the task that sends it. All messages are to be added before
// the operation gets its other tasks.
void addSend(Mailbox& mailbox, MessageOp& op, Outgoing message, SendMode mode = SendMode::kEager);

// Receives a message into `place`. `source` may be kAnySource; the task sets *sender to the rank
// that sent it.
Task receive(Mailbox& mailbox, const MessageOp& op, int source, int64_t tag, Span place,
             std::shared_ptr<int> sender);

// A WeightedRank is a neighbor, with the weight of what goes between it and this rank.
struct WeightedRank {
  int rank;
  double weight;
};
std::vector<int> ranksOf(const std::vector<WeightedRank>& weighted);

// A SumPiece is a stretch of what a rank adds to a sum, and of where the sum goes. It does not own
// the memory.
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

// A NeighborSum says what neighborSum() computes:
//   output = (self_weight * input + sum of weight_i * (what rank i sends)) / divisor
// The terms are added in the order of `sources`, this rank's before the first one of a higher rank:
// ranks that add up the same terms get the same bits. No element may lie across a multiple of
// Lane::payload() bytes, so pieces of wider types go first.
struct NeighborSum {
  double self_weight = 1.0;
  std::vector<WeightedRank> sources;
  double divisor = 1.0;
  SegmentList<SumPiece> pieces;
  // Whether large messages are added as they stream. That is not possible where messages are
  // announced before they are made: messages of other operations would wait behind them in the
  // lanes, and they perhaps for those.
  bool streams = true;
};

// Forms the sum in one pass, while the peers' messages stream by. `early` has the receives of the
// messages where the operation has already posted them.
Task neighborSum(Mailbox& mailbox, const MessageOp& op, NeighborSum sum, int64_t tag,
                 PostedReceives early = {});

// An Allocate returns where to put messages of those lengths, which are in bytes.
using Allocate = std::function<std::vector<std::byte*>(const std::vector<size_t>& bytes)>;

// Receives one message from each of the sources. A message may have any number of rows; the
// signature has the size of one.
Task neighborGather(Mailbox& mailbox, const MessageOp& op, std::vector<int> sources, int64_t tag,
                    Allocate allocate);

// A Notice tells a rank what it exchanges with another one by other means than the mailbox. It is
// sent as it lies in memory.
struct Notice {
  uint64_t exchange = 0;  // the number of this exchange among those of the two ranks
  int64_t rows = 0;       // how many rows the sender of the notice sends
  uint64_t sends = 0;     // whether the sender of the notice sends data
  uint64_t receives = 0;  // whether the sender of the notice receives data

  // Returns the message that sends this notice, which must outlive it.
  Outgoing to(int destination, int64_t tag) const {
    return {destination, tag,
            ConstSpans(ConstSpan{reinterpret_cast<const std::byte*>(this), sizeof *this})};
  }
};

// A Hierarchy says what a rank exchanges with the ranks of its machine, and with its counterparts
// on other machines.
struct Hierarchy {
  std::vector<int> locals;  // the ranks of the machine, ascending
  int local_rank = 0;
  double divisor = 1.0;               // divides the sum over the machine
  NeighborSum between;                // the sum over machines, without its `pieces`
  std::vector<WeightedRank> outward;  // the counterparts that get this machine's sum
};

// Adds to the operation the tasks that compute a sum over machines. `output` gets what
// `hierarchy.between` says, where each rank has the sum of its machine / divisor. Each rank of a
// machine forms one part of the result and hands it out; `part` has room for this rank's.
void addHierarchicalSum(Mailbox& mailbox, MessageOp& op, Hierarchy hierarchy,
                        const std::byte* input, std::byte* part, std::byte* output, int64_t tag);
// Returns how many elements the largest part has.
size_t largestPart(size_t count, size_t locals);

}  // namespace bluefog
