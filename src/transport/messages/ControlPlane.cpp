#include "transport/messages/ControlPlane.hpp"

#include <algorithm>
#include <utility>

namespace bluefog {

void ControlPlane::send(int peer, const ControlMessage& control) {
  state_.lane(peer).control.queue(control);
  flush(peer);
}

void ControlPlane::cancel(int peer, uint64_t id, ControlMessage::ControlKind how,
                          const CancelReason& why) {
  if (!state_.is_silent) {
    send(peer, {.id = id, .kind = how, .cancel_reason = why});
  }
}

bool ControlPlane::flush(int peer) {
  const bool moved = state_.lane(peer).control.send();
  if (moved) {
    state_.wakeups.add(peer);
  }
  return moved;
}

std::optional<ControlMessage> ControlPlane::take(int peer) {
  ControlChannel& channel = state_.lane(peer).control;
  if (!channel.isSound()) {
    throw damaged(state_.members, peer, "its answers");
  }
  return channel.take();
}

bool ControlPlane::hasIncoming() const {
  return std::any_of(state_.lanes.begin(), state_.lanes.end(),
                     [](const Lane& lane) { return lane.control.hasIncoming(); });
}

void ControlPlane::sendDeadlockNotice(int peer, const DeadlockNotice& notice) {
  send(peer, {.id = notice.waits, .kind = ControlMessage::kDeadlock, .signature = notice.called});
}

std::optional<DeadlockNotice> ControlPlane::takeDeadlockNotice(int peer) {
  return std::exchange(state_.lane(peer).deadlock_notice, std::nullopt);
}

}  // namespace bluefog
