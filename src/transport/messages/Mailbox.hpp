#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/RankSet.hpp"
#include "transport/memory/PendingWakeups.hpp"
#include "transport/memory/Segments.hpp"
#include "transport/messages/CallTracker.hpp"
#include "transport/messages/CancelScope.hpp"
#include "transport/messages/ControlPlane.hpp"
#include "transport/messages/FlowControl.hpp"
#include "transport/messages/LateMismatches.hpp"
#include "transport/messages/MailboxState.hpp"
#include "transport/messages/ReceiveProtocol.hpp"
#include "transport/messages/SendProtocol.hpp"
#include "transport/messages/SharedMemoryReads.hpp"

namespace bluefog {

// The Mailbox moves the bytes of a group's point-to-point and neighbor operations. It owns the
// parts that do so, and drives them together. Every pair of ranks has a lane in each direction; an
// operation that waits for one rank stops no other one. Segments, members and wakeups outlive it.
//
// Thread safety: any thread may read counters(), and ask reads().storesFor(). Only the thread that
// drives the engine may use anything else.
class Mailbox {
 public:
  Mailbox(const Segments& segments, const Membership& members, PendingWakeups& wakeups)
      : state_(segments, members, wakeups) {}
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  int rank() const { return state_.members.rank; }
  SendProtocol& sends() { return sends_; }
  const SendProtocol& sends() const { return sends_; }
  ReceiveProtocol& receives() { return receives_; }
  const ReceiveProtocol& receives() const { return receives_; }
  SharedMemoryReads& reads() { return reads_; }
  ControlPlane& control() { return control_; }
  CallTracker& calls() { return calls_; }
  const CallTracker& calls() const { return calls_; }
  LateMismatches& lateMismatches() { return late_mismatches_; }
  ByteCounters& counters() { return state_.counters; }

  // Takes in what has come from all peers, and sends what found no room before. Returns whether
  // anything moved.
  bool drain();
  // Returns the sequence numbers of the operations that may go on since the last call, because
  // something has come for them or because it is their turn in a lane.
  std::vector<uint64_t> takeRunnable() { return std::exchange(state_.runnable, {}); }
  // Returns whether no receive is posted, no message is unexpected, and nothing is to be told: then
  // the next frame of each lane belongs to the next call.
  bool isQuiet() const;
  // Returns whether a peer may still have to hear of an operation that has ended on this rank.
  bool owesAnything() const;
  // Notes that those ranks are gone. Nothing is owed to them any more.
  void giveUpOn(const RankSet& gone);
  // Returns those of the ranks from which no frame lies in a lane. A frame may be for any
  // operation.
  RankSet silent(const RankSet& gone);
  // From now on this rank does not say what it cancels. It leaves, and its peers hear of that.
  void fallSilent() { state_.is_silent = true; }
  // Lets the peers of tasks that are destroyed within the scope hear that reason.
  CancelScope cancelScope(const std::optional<Failure>& why) { return {state_, why}; }

 private:
  bool drainControl(int peer);
  void dispatch(int peer, const ControlMessage& control);

  MailboxState state_;
  ControlPlane control_{state_};
  FlowControl flow_{state_, control_};
  SharedMemoryReads reads_{state_, control_};
  SendProtocol sends_{state_, control_, flow_, reads_};
  ReceiveProtocol receives_{state_, control_, flow_};
  LateMismatches late_mismatches_;
  CallTracker calls_{state_, receives_, late_mismatches_};
};

}  // namespace bluefog
