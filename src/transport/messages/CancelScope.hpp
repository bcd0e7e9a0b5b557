#pragma once

#include <optional>

#include "transport/messages/MailboxState.hpp"
#include "transport/messages/MessageFailures.hpp"

namespace bluefog {

// While a CancelScope lives, tasks are destroyed for the failure that it was given, and the peers
// of their messages are told so. Without a failure, they have ended in order.
//
// Thread safety: only the thread that drives the engine may use it.
class CancelScope {
 public:
  CancelScope(MailboxState& state, const std::optional<Failure>& why) : state_(state) {
    state_.cancel_reason = why ? cancelReasonOf(state.members, *why) : CancelReason();
  }
  ~CancelScope() { state_.cancel_reason = {}; }
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

 private:
  MailboxState& state_;
};

}  // namespace bluefog
