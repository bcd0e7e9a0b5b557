#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "transport/memory/Ring.hpp"
#include "transport/memory/Segment.hpp"
#include "transport/messages/ControlChannel.hpp"
#include "transport/messages/DeadlockNotice.hpp"
#include "transport/messages/ReceiveState.hpp"
#include "transport/messages/SendState.hpp"

namespace bluefog {

// A Lane is what this rank shares with one peer: the two rings of messages, the control messages
// that run against them, and the queues of what is on its way in either direction. The rings lie in
// `segment`, which must outlive it.
//
// Thread safety: only the thread that drives the engine may use it.
struct Lane {
  // A CanceledSend is a message whose operation has ended before its first frame was published.
  struct CanceledSend {
    Frame announcement;
    CancelReason why;
  };

  // Where the frame of an offer has the first bytes of what is offered, behind its place. Now and
  // then a receiver times how it reads them: see StorePolicy.
  static constexpr size_t kSampleAt = RingShape::kLine;

  Lane(const Segment& segment, int rank, int peer)
      : out(segment.lane(rank, peer), Segment::laneShape()),
        in(segment.lane(peer, rank), Segment::laneShape(), 0),
        control(segment.controlRing(peer, rank), segment.controlRing(rank, peer)),
        offers_over(&segment.controlRing(rank, peer).offers_over),
        their_offers_over(&segment.controlRing(peer, rank).offers_over) {}

  // Returns the bytes that one frame carries.
  static size_t payload() { return Segment::laneShape().payload; }

  // ---- to the peer
  RingWriter out;
  std::deque<uint64_t> departing;  // ids whose first frame is not out yet, in their order
  std::map<uint64_t, CanceledSend> canceled;  // of `departing`, by id
  std::map<uint64_t, SendState*> unanswered;  // by id; each is its PostedSend's
  size_t outstanding = 0;                     // charged bytes sent and not yet credited

  // ---- from the peer
  RingReader in;
  std::map<uint64_t, std::shared_ptr<ReceiveState>> coming;  // announced or streaming, by id
  std::map<uint64_t, CancelReason> broken_off;  // ids whose announcement is still in the lane
  uint64_t unseen_from = 0;                     // the first id that has not come out of the lane
  size_t unexpected_bytes = 0;                  // charged bytes in the unexpected queue
  size_t uncredited = 0;                        // charged bytes taken and not yet credited
  size_t abandoned = 0;  // messages that nobody waits for and that have not come
  std::optional<DeadlockNotice> deadlock_notice;

  // ---- both
  ControlChannel control;
  // Offers of messages with smaller ids are over: this rank's, and the peer's.
  std::atomic<uint64_t>* offers_over;
  const std::atomic<uint64_t>* their_offers_over;
  std::optional<Mapping> heap;  // the peer's; without a value until it was looked for
  bool is_gone = false;         // the peer has died or left: nothing comes, and nobody listens
};

}  // namespace bluefog
