#pragma once

#include <cstdint>
#include <optional>

#include "transport/messages/LateMismatches.hpp"
#include "transport/messages/MailboxState.hpp"
#include "transport/messages/ReceiveProtocol.hpp"

namespace bluefog {

// The CallTracker knows which calls of neighbors this rank and its peers have made. A message that
// comes for a call that this rank has made without receiving it is rejected, and a posted receive
// fails when its source has made the call without sending.
//
// Thread safety: only the thread that drives the engine may use it.
class CallTracker {
 public:
  CallTracker(MailboxState& state, ReceiveProtocol& receives, LateMismatches& late_mismatches)
      : state_(state), receives_(receives), late_mismatches_(late_mismatches) {}

  // Notes that this rank has posted all receives of that call. Other messages for that call, or an
  // earlier one, are rejected.
  void note(const Counter& counter, uint64_t number);
  // Returns the number of this rank's last call without a name.
  uint64_t last() const { return state_.calls.of(Counter()); }
  // Returns the number of the peer's last call without a name; nothing where the peer is on another
  // host.
  std::optional<uint64_t> madeBy(int peer) const;
  // Ends the waits for ranks of this host that have made a call without sending for it.
  void endPassedWaits();
  // Lets all counters go on from that number. Messages of earlier calls are dropped in silence.
  void align(uint64_t number);

 private:
  MailboxState& state_;
  ReceiveProtocol& receives_;
  LateMismatches& late_mismatches_;
};

}  // namespace bluefog
