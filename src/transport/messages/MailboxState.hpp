#pragma once

#include <cstdint>
#include <vector>

#include "transport/memory/CallCounts.hpp"
#include "transport/memory/PendingWakeups.hpp"
#include "transport/memory/Segments.hpp"
#include "transport/messages/ByteCounters.hpp"
#include "transport/messages/Lane.hpp"
#include "transport/operations/Failure.hpp"
#include "transport/tuning/StorePolicy.hpp"

namespace bluefog {

// The MailboxState is what the parts of one Mailbox share. It owns the lanes to all peers, by rank.
// Segments, members and wakeups belong to the scheduler and outlive it.
//
// Thread safety: only the thread that drives the engine may use it. Any thread may read `counters`
// and StorePolicy::preferred().
struct MailboxState {
  MailboxState(const Segments& its_segments, const Membership& its_members,
               PendingWakeups& its_wakeups)
      : segments(its_segments), members(its_members), wakeups(its_wakeups) {
    lanes.reserve(static_cast<size_t>(members.size));
    for (int peer = 0; peer < members.size; ++peer) {
      lanes.emplace_back(segments.with(peer), members.rank, peer);
    }
  }
  MailboxState(const MailboxState&) = delete;
  MailboxState& operator=(const MailboxState&) = delete;

  Lane& lane(int peer) { return lanes[static_cast<size_t>(peer)]; }
  const Lane& lane(int peer) const { return lanes[static_cast<size_t>(peer)]; }

  const Segments& segments;
  const Membership& members;
  PendingWakeups& wakeups;
  std::vector<Lane> lanes;
  std::vector<uint64_t> runnable;  // sequence numbers of operations that may go on
  CallCounts calls;                // the calls of neighbors that this rank has made
  StorePolicy store_policy;
  ByteCounters counters;
  CancelReason cancel_reason;  // why tasks are being destroyed: see CancelScope
  bool is_silent = false;      // this rank leaves, and tells nobody what it cancels
};

}  // namespace bluefog
