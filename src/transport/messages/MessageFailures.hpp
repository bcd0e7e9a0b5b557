#pragma once

#include <cstdint>

#include "transport/memory/Segment.hpp"
#include "transport/messages/ReceiveState.hpp"
#include "transport/operations/Failure.hpp"

namespace bluefog {

// These functions say why messages fail, in the words of errors. Any thread may call them.

// Returns what peers are told where an operation of this rank ends with that failure.
CancelReason cancelReasonOf(const Membership& members, const Failure& failure);
// Returns the failure of an operation whose message `peer` has canceled for that reason.
Failure canceledBy(const Membership& members, int peer, const CancelReason& theirs);
// Returns why a posted message does not come: its source has made that call, or a later one.
Failure passedBySource(const Membership& members, const ReceiveState& message);
// Returns why a message in call `number` failed: its receiver made that call without receiving it.
Failure notReceived(const Membership& members, int receiver, const Signature& sent,
                    uint64_t number);
// Returns the failure of a message that `peer` refused after its operation had ended.
Failure refusedLate(const Membership& members, int peer, const ControlMessage& refusal);

}  // namespace bluefog
