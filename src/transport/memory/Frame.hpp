#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>

#include "core/Dtype.hpp"
#include "core/RankSet.hpp"
#include "core/Reduce.hpp"
#include "transport/tuning/StoreSample.hpp"

namespace bluefog {

// OpKind names the operations of a group. The order is that of the names in Frame.cpp.
enum class OpKind : uint8_t {
  kBarrier,
  kAllReduce,
  kAllReduceSparse,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
  kPointToPoint,
  kNeighborAllReduce,
  kMonitoredBarrier,
  kNeighborAllGather,
  kNeighborAllToAll,
  kPairGossip,
  kHierarchicalNeighborAllReduce,
  kWindow,
  kService,
};

// Returns the operation's name as error texts have it, as in "reduce_scatter".
const char* name(OpKind kind);
// Returns whether the ranks name each other in calls of this kind, as edges of a graph.
bool isBetweenNeighbors(OpKind kind);
// kNeighborsKind stands for all neighbor operations in match keys and counters.
constexpr OpKind kNeighborsKind = OpKind::kNeighborAllReduce;
// Returns the kind under which messages of such a call match. All neighbor operations match under
// one kind, so that different calls meet and the mismatch is reported. pair_gossip keeps its own
// kind, because its calls are counted for each pair.
inline OpKind matchedAs(OpKind kind) {
  return isBetweenNeighbors(kind) && kind != OpKind::kPairGossip ? kNeighborsKind : kind;
}

// An End says which end of a point-to-point message a rank is; kNone in all other operations.
enum class End : uint8_t { kNone, kSend, kReceive, kReceiveFromAny };

const char* name(End end);

// Where says whether the tensors of a call are in the host's memory or an accelerator's.
enum class Where : uint8_t { kHost, kDevice };

// A Signature is what a rank says it is calling. Ranks that meet in one operation must say the
// same, except for the two ends of a point-to-point message.
struct Signature {
  OpKind kind = OpKind::kBarrier;
  ReduceKind reduce = ReduceKind::kNone;
  Dtype dtype = Dtype::kUInt8;
  End end = End::kNone;
  int16_t root = -1;
  Where where = Where::kHost;
  uint64_t count = 0;   // elements of this rank's contribution
  uint64_t detail = 0;  // tells calls apart whose counts agree: a digest of uneven sizes

  // Compares all that ranks must agree on, which is everything but the end.
  bool operator==(const Signature& other) const {
    const auto agreed = [](const Signature& it) {
      return std::tie(it.kind, it.reduce, it.dtype, it.root, it.where, it.count, it.detail);
    };
    return agreed(*this) == agreed(other);
  }
  size_t bytes() const { return count * width(dtype); }
};

// Returns a value for Signature::detail, made of the sizes that a rank passes.
uint64_t digest(std::span<const size_t> sizes);

// Returns the call's name for error texts, as in "allreduce".
const char* name(const Signature& signature);
// Returns what follows the name in error texts, as in " SUM float32[4096]".
std::string details(const Signature& signature);
// Does the same, but names this root: a root's global rank may not fit into an int16_t.
std::string details(const Signature& signature, int root);

// A FrameType says what the payload of a frame is. kCollective frames go over boards. The others
// belong to messages: all of a small one (kEager), the announcement of a large one (kAnnounce), or
// a part of a large one (kData).
enum class FrameType : uint8_t { kCollective, kEager, kAnnounce, kData };

// A Phase says which of an operation's messages to one rank a message is. A second message has the
// id of the first one as its tag. So it matches only the operation that received the first one,
// even if the two ranks called different operations.
enum class Phase : uint8_t { kOnly, kFirst, kSecond };

// A message's id is made of the sequence number of the operation that sends it, and of its phase.
// Ids are unique among the messages from one rank to another.
constexpr uint64_t kPhases = 4;
constexpr uint64_t messageId(uint64_t sequence, Phase phase = Phase::kOnly) {
  return sequence * kPhases + static_cast<uint64_t>(phase);
}
constexpr uint64_t operationOf(uint64_t id) {
  return id / kPhases;
}
constexpr Phase phaseOf(uint64_t id) {
  return static_cast<Phase>(id % kPhases);
}

// A MatchKey is what messages match by, together with the rank that they come from. Messages of
// neighbor calls carry the number of their call. Messages with equal keys match in the order in
// which they were sent.
struct MatchKey {
  OpKind kind = OpKind::kPointToPoint;
  int64_t tag = 0;
  uint64_t number = 0;

  auto operator<=>(const MatchKey&) const = default;
};

// kOrders is the number of consecutive tags that belong to one name, or to calls without a name:
// for a call, for its gradient, for the gradient of that gradient, and so on
// (python/bluefog_pg/_core/tags.py).
constexpr int64_t kOrders = 16;

// A Counter names a sequence in which a rank counts its neighbor calls. There is one for all calls
// without a name, one for each name, and one for each pair that gossips.
struct Counter {
  OpKind kind = kNeighborsKind;
  int64_t tag = 0;
  int partner = -1;  // the other rank of a pair; -1 if the counter is not a pair's

  auto operator<=>(const Counter&) const = default;
  // Returns the counter of the call that a message with this key from `source` belongs to, or
  // nothing if that call is not counted. Messages of gradients carry the number of their call, but
  // have no counter.
  static std::optional<Counter> of(const MatchKey& key, int source) {
    const bool is_pair = key.kind == OpKind::kPairGossip;
    const bool is_counted =
        (is_pair || key.kind == kNeighborsKind) && key.number > 0 && key.tag % kOrders == 0;
    return is_counted ? std::optional(Counter{key.kind, key.tag, is_pair ? source : -1})
                      : std::nullopt;
  }
};

// A Frame is the first 64 bytes of a slot in a ring. One rank writes it and others read it, so a
// reader checks the bounds of whatever it uses as a size.
struct Frame {
  FrameType type : 2 = FrameType::kCollective;
  StoreSample written : 2 = StoreSample::kNone;
  uint64_t bytes : 18 = 0;   // payload bytes that follow
  uint64_t number : 42 = 0;  // of a message: the call's number, see MatchKey
  uint64_t id = 0;           // sequence number on the writing rank; of a message: see messageId
  int64_t tag = 0;           // of a message: see MatchKey
  uint64_t offset = 0;  // kData: where in the message the payload belongs; kAnnounce: its length
  double weight = 1.0;  // what the sender wants its data multiplied by
  Signature signature;
};

// Returns the key that the frame's message is matched by. A second message has no call number, so
// that it matches only by the id of its first message.
inline MatchKey matchKeyOf(const Frame& frame) {
  const OpKind kind = frame.signature.kind;
  return phaseOf(frame.id) == Phase::kSecond ? MatchKey{kind, frame.tag, 0}
                                             : MatchKey{matchedAs(kind), frame.tag, frame.number};
}

static_assert(sizeof(Signature) == 24);
static_assert(sizeof(Frame) == 64);

}  // namespace bluefog
