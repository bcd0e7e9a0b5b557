#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ratio>
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
  kAgreement,
};

const char* name(OpKind kind);
// Whether ranks name each other in its calls, as edges of a graph.
bool isBetweenNeighbors(OpKind kind);
// Messages of one line and tag match by their order: unlike calls between neighbours meet, and are
// told.
constexpr OpKind kNeighborsLine = OpKind::kNeighborAllReduce;
inline OpKind lineOf(OpKind kind) {
  return isBetweenNeighbors(kind) ? kNeighborsLine : kind;
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
  // A call of its own. (Of a device's tensors a call has an operation for each neighbour.)
  bool isCall() const { return isBetweenNeighbors(kind) && where == Where::kHost; }
};

// For Signature::detail, of the sizes that ranks pass.
uint64_t digest(std::span<const size_t> sizes);

// In messages: "allreduce", and what follows it, " SUM float32[4096]".
const char* name(const Signature& signature);
std::string details(const Signature& signature);
// With the root named so: its global rank may be no int16_t.
std::string details(const Signature& signature, int root);

enum class FrameType : uint8_t { kCollective, kEager, kAnnounce, kData };

// In which way, for readers to time it: see Passage.
enum class Written : uint8_t { kUntimed, kCached, kStreamed };

// Which of its operation's messages to one rank a message is. A second one has its first one's id
// for a tag: it goes with that alone, whatever that has met.
enum class Phase : uint8_t { kOnly, kFirst, kSecond };

// A message is known by the operation that sends it and its phase. With that goes how many calls
// between neighbours its rank has made so far, but the host's by names, modulo kCalls. (Numbers of
// operations have the other 40 bits.)
constexpr uint64_t kPhases = 4;
constexpr uint64_t kCalls = uint64_t{1} << 22;
constexpr uint64_t messageId(uint64_t sequence, uint64_t calls, Phase phase = Phase::kOnly) {
  return (sequence * kCalls + calls % kCalls) * kPhases + static_cast<uint64_t>(phase);
}
constexpr uint64_t operationOf(uint64_t id) {
  return id / kPhases / kCalls;
}
constexpr Phase phaseOf(uint64_t id) {
  return static_cast<Phase>(id % kPhases);
}
// What has no name has a smaller tag: see neighbors/_arguments.py.
constexpr int64_t kNames = 16;
// How many more of them its rank had made when it was sent than so many.
constexpr int64_t callsAhead(uint64_t id, uint64_t calls) {
  const auto ahead = static_cast<int64_t>((id / kPhases - calls) % kCalls);
  const auto all = static_cast<int64_t>(kCalls);
  return ahead < all / 2 ? ahead : ahead - all;
}

// Of a clock that the processes of a host share, in quarters of a second. Goes round in 4.5 hours.
using Quarters = std::chrono::duration<int64_t, std::ratio<1, 4>>;
inline uint16_t quartersOf(std::chrono::steady_clock::time_point time) {
  const auto since = std::chrono::duration_cast<Quarters>(time.time_since_epoch());
  return static_cast<uint16_t>(since.count());
}
inline uint16_t quartersNow() {
  return quartersOf(std::chrono::steady_clock::now());
}

// The first 64 bytes of a slot. Written by one rank, read by others: a reader bounds-checks
// whatever it uses as a size.
struct Frame {
  FrameType type = FrameType::kCollective;
  Written written : 2 = Written::kUntimed;
  bool is_unsure : 1 = false;  // messages: since the last one, a call has met another one here
  uint16_t sent = 0;           // messages: when, see quartersNow
  uint32_t bytes = 0;          // payload that follows
  uint64_t id = 0;      // the operation's sequence number on the rank that writes; see messageId
  int64_t tag = 0;      // messages
  uint64_t offset = 0;  // kData: where in the message the payload belongs; kAnnounce: its length
  double weight = 1.0;  // what the sender wants its data scaled by
  Signature signature;
};

// A second message goes with its first one, not with what waits in the line.
inline OpKind lineOf(const Frame& frame) {
  const OpKind kind = frame.signature.kind;
  return phaseOf(frame.id) == Phase::kSecond ? kind : lineOf(kind);
}

static_assert(sizeof(Signature) == 24);
static_assert(sizeof(Frame) == 64);

}  // namespace bluefog
