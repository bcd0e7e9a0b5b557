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

namespace bluefog {

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

const char* name(OpKind kind);
// Whether ranks name each other in its calls, as edges of a graph.
bool isBetweenNeighbors(OpKind kind);
// Calls of one line count together: unlike calls of neighbors meet, and are told. pair_gossip
// counts for its pair alone.
constexpr OpKind kNeighborsKind = OpKind::kNeighborAllReduce;
inline OpKind matchedAs(OpKind kind) {
  return isBetweenNeighbors(kind) && kind != OpKind::kPairGossip ? kNeighborsKind : kind;
}

// Which end of a point-to-point message a rank is.
enum class End : uint8_t { kNone, kSend, kReceive, kReceiveFromAny };

const char* name(End end);

// Where its tensors are: in the host's memory, or an accelerator's.
enum class Where : uint8_t { kHost, kDevice };

// What a rank says it is calling. Ranks that meet in one operation must say the same, but for the
// ends of a message.
struct Signature {
  OpKind kind = OpKind::kBarrier;
  ReduceKind reduce = ReduceKind::kNone;
  Dtype dtype = Dtype::kUInt8;
  End end = End::kNone;
  int16_t root = -1;
  Where where = Where::kHost;
  uint64_t count = 0;   // elements of this rank's contribution
  uint64_t detail = 0;  // tells calls apart whose counts agree: a digest of uneven sizes

  bool operator==(const Signature& other) const {
    const auto agreed = [](const Signature& it) {
      return std::tie(it.kind, it.reduce, it.dtype, it.root, it.where, it.count, it.detail);
    };
    return agreed(*this) == agreed(other);
  }
  size_t bytes() const { return count * width(dtype); }
};

// For Signature::detail, of the sizes that ranks pass.
uint64_t digest(std::span<const size_t> sizes);

// In messages: "allreduce", and what follows it, " SUM float32[4096]".
const char* name(const Signature& signature);
std::string details(const Signature& signature);
// With the root named so: its global rank may be no int16_t.
std::string details(const Signature& signature, int root);

enum class FrameType : uint8_t { kCollective, kEager, kAnnounce, kData };

// In which way, for readers to time it: see StorePolicy.
enum class StoreSample : uint8_t { kNone, kCached, kStreamed };

// Which of its operation's messages to one rank a message is. A second one has its first one's id
// for a tag: it goes with that alone, whatever that has met.
enum class Phase : uint8_t { kOnly, kFirst, kSecond };

// A message is known by the operation that sends it and its phase.
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

// Messages match by this, beside the rank they come from. Those of calls of neighbors have the
// number of the call. Equal ones match by their order.
struct MatchKey {
  OpKind kind = OpKind::kPointToPoint;
  int64_t tag = 0;
  uint64_t number = 0;

  auto operator<=>(const MatchKey&) const = default;
};

// The tags next to each other that belong to a name, or to none: of a call, of its gradient, of
// that one's gradient (python/bluefog_pg/_tags.py).
constexpr int64_t kOrders = 16;

// A rank counts its calls of neighbors by this: those without a name, those of a name, and those of
// a pair.
struct Counter {
  OpKind kind = kNeighborsKind;
  int64_t tag = 0;
  int partner = -1;

  auto operator<=>(const Counter&) const = default;
  // The counter of the calls that a message of that line from that rank is a part of. Gradients
  // have the numbers of their calls, and no counter.
  static std::optional<Counter> of(const MatchKey& key, int source) {
    const bool is_pair = key.kind == OpKind::kPairGossip;
    const bool is_counted =
        (is_pair || key.kind == kNeighborsKind) && key.number > 0 && key.tag % kOrders == 0;
    return is_counted ? std::optional(Counter{key.kind, key.tag, is_pair ? source : -1})
                      : std::nullopt;
  }
};

// The first 64 bytes of a slot. Written by one rank, read by others: a reader bounds-checks
// whatever it uses as a size.
struct Frame {
  FrameType type : 2 = FrameType::kCollective;
  StoreSample written : 2 = StoreSample::kNone;
  uint64_t bytes : 18 = 0;   // payload that follows
  uint64_t number : 42 = 0;  // messages: see MatchKey
  uint64_t id = 0;      // the operation's sequence number on the rank that writes; see messageId
  int64_t tag = 0;      // messages
  uint64_t offset = 0;  // kData: where in the message the payload belongs; kAnnounce: its length
  double weight = 1.0;  // what the sender wants its data scaled by
  Signature signature;
};

// A second message goes with its first one alone.
inline MatchKey matchKeyOf(const Frame& frame) {
  const OpKind kind = frame.signature.kind;
  return phaseOf(frame.id) == Phase::kSecond ? MatchKey{kind, frame.tag, 0}
                                             : MatchKey{matchedAs(kind), frame.tag, frame.number};
}

static_assert(sizeof(Signature) == 24);
static_assert(sizeof(Frame) == 64);

}  // namespace bluefog
