#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "core/Error.hpp"
#include "core/Fd.hpp"
#include "transport/memory/BlockedState.hpp"
#include "transport/memory/CoreMap.hpp"
#include "transport/memory/EventCount.hpp"
#include "transport/memory/Ring.hpp"

namespace bluefog {

// Why an operation has ended too early.
struct CancelReason {
  Cause why = Cause::kAborted;
  RankSet blamed;
};

// What the receiver of a large message answers to its announcement.
struct ControlMessage {
  enum ControlKind : uint64_t {
    kNone,
    kClearToSend,
    kRefused,      // the receiver called something else: `signature`
    kNotReceived,  // the receiver did not receive from the sender in the call of that `number`
    kFinished,     // the receiver has read what was offered
    kWithdrawn,    // the receiver's operation has ended without it
    // Not answers, but said the same way:
    kBrokenOff,  // the sender's operation has ended without sending all of the message of this id
    kCredit,     // `id` bytes of small messages have been taken
    kDeadlock    // no message will come: this rank waits in another operation, the `signature`'s
  };

  uint64_t id = 0;
  ControlKind kind = kNone;
  CancelReason cancel_reason = {};  // kWithdrawn, kBrokenOff
  // kRefused, kDeadlock: what the receiver called. kNotReceived: what the sender called.
  Signature signature = {};
  uint64_t number = 0;
};

// Control messages run against the direction of the data, in a ring of their own, so that they can
// never be stuck behind data that nobody takes yet.
struct ControlRing {
  static constexpr uint64_t kEntries = 64;
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  // What the sender of the data has offered in messages of smaller ids may have changed since, but
  // for such as have been taken.
  std::atomic<uint64_t> offers_over;
  ControlMessage entries[kEntries];
};

// The number of a rank's last unnamed call of neighbors. The first frames of what it sends in that
// call, and in those before, are in their lanes.
struct alignas(64) CallsMade {
  std::atomic<uint64_t> number;
};

// The first failure of the group's collectives, for all ranks to tell the same story.
struct GroupFailureCell {
  static constexpr size_t kMostText = 2048;
  enum CellState : uint32_t { kNone, kBeingWritten, kWritten };

  std::atomic<uint32_t> state;
  uint32_t cause;
  uint64_t sequence;  // of the collective that failed
  uint32_t ranks_n;
  int32_t ranks[kMostRanks];
  uint32_t text_n;
  char text[kMostText];
};

// The memory that the ranks of one group on one host share: one sealed memfd, made by the first of
// them and passed to the others over unix sockets. It has no name anywhere, so nothing is left when
// all are killed.
//
//   GroupFailureCell | EventCount x n | BlockedState x n | CallsMade x n | CoreMap |
//   board rings, two x n (read by the n - 1 others) | lane ring, ControlRing x n x n |
//   heap, room x n
//
// Of the heaps and rooms nothing is mapped here, and they take no memory until they are used.
class Segment {
 public:
  // `note`: see SharedMemory.
  static Fd create(int size, std::string* note = nullptr);
  // Maps what create() made. Checks seals and size, so that no peer can make an access fault.
  Segment(const Fd& memory, int size);

  int size() const { return size_; }
  GroupFailureCell& groupFailure() const;
  EventCount& eventCount(int rank) const;
  BlockedState& blockedState(int rank) const;
  CallsMade& callsMade(int rank) const;
  CoreMap& coreMap() const;
  // The ring of a rank on one of the group's two boards.
  std::byte* board(int which, int writer) const;
  // Which of its readers that rank is.
  static uint32_t boardReader(int writer, int reader) {
    return static_cast<uint32_t>(reader < writer ? reader : reader - 1);
  }
  std::byte* lane(int from, int to) const;
  ControlRing& controlRing(int from, int to) const;

  // Where a rank keeps what its peers read; where they write.
  enum class Area { kHeap, kRoom };
  // 0 where there are none.
  size_t bytesOf(Area area) const;
  // Finds room for a part of a rank's area before it is used: see SharedMemory. False where there
  // is none. It lives longer than this.
  using FindRoom = std::function<bool(size_t begin, size_t bytes)>;
  FindRoom roomIn(Area area, int rank) const;
  static constexpr size_t kAreaAlignment = size_t{2} << 20;  // a huge page
  // That rank's; empty where the system has no place for it. `protection` as for mmap(). Not in
  // core dumps, which would fetch every page that nobody has touched.
  Mapping map(Area area, int rank, int protection) const;

  static constexpr int kBoards = 2;
  RingShape boardShape() const { return boardShape(size_); }
  static RingShape laneShape();

 private:
  static RingShape boardShape(int size);
  static size_t bytes(int size);  // without heaps and rooms
  static size_t areasAt(int size);
  static size_t withAreas(int size);
  size_t at(Area area, int rank) const;

  Fd memory_;
  Mapping mapping_;
  int size_;
  bool has_areas_;
  bool is_file_;
};

}  // namespace bluefog
