#include "transport/messages/CallTracker.hpp"

#include <algorithm>
#include <atomic>

namespace bluefog {

void CallTracker::note(const Counter& counter, uint64_t number) {
  state_.calls.set(counter, std::max(number, state_.calls.of(counter)));
  if (!receives_.hasUnexpected()) {
    return;
  }
  for (int peer = 0; peer < state_.members.size; ++peer) {
    if (counter.partner < 0 || counter.partner == peer) {
      receives_.rejectUpTo(counter, number, peer);
    }
  }
}

std::optional<uint64_t> CallTracker::madeBy(int peer) const {
  return state_.segments.hosts().isHere(peer)
             ? std::optional(state_.segments.shared().callsMade(peer).number.load())
             : std::nullopt;
}

void CallTracker::endPassedWaits() {
  if (!receives_.hasPosted()) {
    return;
  }
  for (const int peer : state_.segments.hosts().here()) {
    if (peer == state_.members.rank) {
      continue;
    }
    // The number is read before the lane: whatever belongs to those calls is in the lane by then.
    const uint64_t made =
        state_.segments.shared().callsMade(peer).number.load(std::memory_order_acquire);
    if (state_.lane(peer).in.front() == nullptr) {
      receives_.notePassed(Counter(), made, peer);
    }
  }
}

void CallTracker::align(uint64_t number) {
  state_.calls.align(number);
  late_mismatches_.dropThoseOfCalls();
  for (int peer = 0; peer < state_.members.size; ++peer) {
    receives_.forgetCallsUpTo(number, peer);
  }
}

}  // namespace bluefog
