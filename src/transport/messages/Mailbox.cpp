#include "transport/messages/Mailbox.hpp"

#include "transport/messages/MessageFailures.hpp"

namespace bluefog {

bool Mailbox::drain() {
  bool moved = false;
  for (int peer = 0; peer < state_.members.size; ++peer) {
    moved |= drainControl(peer);
    moved |= receives_.drain(peer);
    moved |= control_.flush(peer);
    moved |= sends_.announceCanceled(peer);
  }
  return moved;
}

bool Mailbox::drainControl(int peer) {
  bool moved = false;
  while (const std::optional<ControlMessage> control = control_.take(peer)) {
    dispatch(peer, *control);
    moved = true;
  }
  if (moved) {
    state_.wakeups.add(peer);  // it may wait for room in the ring
  }
  return moved;
}

void Mailbox::dispatch(int peer, const ControlMessage& control) {
  switch (control.kind) {
    case ControlMessage::kDeadlock:
      state_.lane(peer).deadlock_notice = {control.id, control.signature};
      return;
    case ControlMessage::kBrokenOff:
      receives_.noteBrokenOff(peer, control);
      return;
    case ControlMessage::kCredit:
      flow_.replenish(peer, control.id);
      return;
    default:
      break;
  }
  if (sends_.noteAnswer(peer, control)) {
    return;
  }
  const uint64_t sequence = operationOf(control.id);
  if (control.kind == ControlMessage::kRefused) {
    late_mismatches_.add(
        {sequence, refusedLate(state_.members, peer, control), control.number > 0});
  } else if (control.kind == ControlMessage::kNotReceived && control.number > state_.calls.base()) {
    late_mismatches_.add({sequence,
                          notReceived(state_.members, peer, control.signature, control.number),
                          true, control.signature.where == Where::kDevice});
  }
}

bool Mailbox::isQuiet() const {
  return !receives_.hasPosted() && !receives_.hasUnexpected() && late_mismatches_.isEmpty() &&
         !control_.hasIncoming();
}

bool Mailbox::owesAnything() const {
  if (state_.is_silent) {
    return false;
  }
  for (int peer = 0; peer < state_.members.size; ++peer) {
    const Lane& lane = state_.lane(peer);
    if (!lane.is_gone &&
        (receives_.hasAbandoned(peer) || control_.isOwedTo(peer) || !lane.canceled.empty())) {
      return true;
    }
  }
  return false;
}

void Mailbox::giveUpOn(const RankSet& gone) {
  for (const int peer : gone.below(state_.members.size)) {
    state_.lane(peer).is_gone = true;
  }
}

RankSet Mailbox::silent(const RankSet& gone) {
  RankSet silent;
  for (const int peer : gone.below(state_.members.size)) {
    if (state_.lane(peer).in.front() == nullptr) {
      silent.add(peer);
    }
  }
  return silent;
}

}  // namespace bluefog
