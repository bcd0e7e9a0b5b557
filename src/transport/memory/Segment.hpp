#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "core/Error.hpp"
#include "core/Fd.hpp"
#include "transport/memory/BlockedState.hpp"
#include "transport/memory/EventCount.hpp"
#include "transport/memory/Ring.hpp"
#include "transport/tuning/CoreMap.hpp"

namespace bluefog {

// A CancelReason says why an operation ended before all of its messages were sent or received.
struct CancelReason {
  Cause why = Cause::kAborted;
  RankSet blamed;
};

// A ControlMessage is what one rank tells another about messages, apart from their data. Most kinds
// go from the receiver of a large message to its sender, and answer the announcement that `id`
// names.
struct ControlMessage {
  enum ControlKind : uint64_t {
    kNone,
    kClearToSend,
    kRefused,      // the receiver called something else, which is in `signature`
    kNotReceived,  // the receiver did not receive from the sender in the call with that `number`
    kFinished,     // the receiver has read what was offered in the sender's heap
    kWithdrawn,    // the receiver's operation has ended without all of the message
    // The kinds below answer no announcement.
    kBrokenOff,  // the sender's operation has ended without sending all of the message of this id
    kCredit,     // the receiver has taken `id` bytes of small messages
    kDeadlock    // no message will come: the writer waits in another operation, the `signature`'s
  };

  uint64_t id = 0;
  ControlKind kind = kNone;
  CancelReason cancel_reason = {};  // of kWithdrawn and kBrokenOff
  // In kRefused and kDeadlock this is what the writer of the ControlMessage called. In kNotReceived
  // it is what the sender of the message called.
  Signature signature = {};
  uint64_t number = 0;
};

// A ControlRing carries ControlMessages from one rank to another. It belongs to a lane and runs in
// the opposite direction, apart from all data, so that a control message is never stuck behind data
// that nobody takes yet. It lies in shared memory, with one writer and one reader.
struct ControlRing {
  static constexpr uint64_t kEntries = 64;
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  // The writer of the lane sets this word. It may have changed the memory that it offered in
  // messages with ids below this one, except where kFinished was answered.
  std::atomic<uint64_t> offers_over;
  ControlMessage entries[kEntries];
};

// CallsMade publishes the number of a rank's last neighbor call without a name. By the time it is
// written, the first frames of all that the rank sends in that call and in earlier ones are in
// their lanes.
struct alignas(64) CallsMade {
  std::atomic<uint64_t> number;
};

// A GroupFailureCell holds the first failure of the group's collectives, so that all ranks report
// the same one. GroupFailure.hpp reads and writes it.
struct GroupFailureCell {
  static constexpr size_t kMostText = 2048;
  enum CellState : uint32_t { kNone, kBeingWritten, kWritten };

  std::atomic<uint32_t> state;
  uint32_t cause;
  uint64_t sequence;  // sequence number of the collective that failed
  uint32_t ranks_n;
  int32_t ranks[kMostRanks];
  uint32_t text_n;
  char text[kMostText];
};

// A Segment is the memory that the ranks of one group on one host share. The first of these ranks
// creates one sealed memfd and passes it to the others over unix sockets. The memfd has no name
// anywhere, so nothing is left when all ranks are killed.
//
//    GroupFailureCell | EventCount x n | BlockedState x n | CallsMade x n | CoreMap |
//    board rings, two x n (read by the n - 1 others) | lane ring, ControlRing x n x n |
//    heap, window area x n
//
// The segment owns its mapping of all parts but the heaps and window areas. Those two are mapped by
// map(), and take no memory until they are used.
// Thread safety: any thread may call any method. Each part that is returned has its own rules.
class Segment {
 public:
  // Creates the memory for a group of `size` ranks. `note` receives SharedMemory's note. Throws if
  // the memory cannot be had.
  static Fd create(int size, std::string* note = nullptr);
  // Maps what create() made. Checks the seals and the size, so that no peer can make an access
  // fault, and throws std::runtime_error if they do not fit.
  Segment(const Fd& memory, int size);

  int size() const { return size_; }
  GroupFailureCell& groupFailure() const;
  EventCount& eventCount(int rank) const;
  BlockedState& blockedState(int rank) const;
  CallsMade& callsMade(int rank) const;
  CoreMap& coreMap() const;
  // Returns the ring that a rank writes to on one of the group's two boards. `which` is below
  // kBoards.
  std::byte* board(int which, int writer) const;
  // Returns which of the readers of the ring of `writer` the rank `reader` is.
  static uint32_t boardReader(int writer, int reader) {
    return static_cast<uint32_t>(reader < writer ? reader : reader - 1);
  }
  // Returns the ring of the messages from one rank to another. It is called a lane because it
  // carries traffic one way between two ranks.
  std::byte* lane(int from, int to) const;
  // Returns the control ring of that lane: `to` writes it and `from` reads it.
  ControlRing& controlRing(int from, int to) const;

  // Each rank has two large areas. Its peers read in its heap, and they write in its window area
  // (kRoom).
  enum class Area { kHeap, kRoom };
  // Returns the size of such an area, or 0 if the segment was made without areas.
  size_t bytesOf(Area area) const;
  // A FindRoom function has the system find memory for the bytes from `begin` of a rank's area,
  // which must be done before they are used (SharedMemory.hpp says why). It returns false if there
  // is no memory. The function may outlive the Segment.
  using FindRoom = std::function<bool(size_t begin, size_t bytes)>;
  FindRoom roomIn(Area area, int rank) const;
  static constexpr size_t kAreaAlignment = size_t{2} << 20;  // a huge page
  // Maps that rank's area; returns an empty Mapping if the segment has none or the process has no
  // addresses for it. `protection` is as for mmap(). The mapping is left out of core dumps, because
  // a dump would fetch every page that nobody has touched.
  Mapping map(Area area, int rank, int protection) const;

  static constexpr int kBoards = 2;
  RingShape boardShape() const { return boardShape(size_); }
  static RingShape laneShape();

 private:
  static RingShape boardShape(int size);
  static size_t bytes(int size);  // without heaps and window areas
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
