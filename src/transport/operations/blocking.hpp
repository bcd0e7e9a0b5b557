#pragma once

#include <optional>
#include <vector>

#include "bootstrap/Links.hpp"
#include "core/RankSet.hpp"
#include "transport/operations/CollectiveOp.hpp"
#include "transport/operations/Failure.hpp"
#include "transport/operations/MessageOp.hpp"

namespace bluefog {

// The functions in this file say what an operation waits for, by the conditions at which its tasks
// are suspended. Only the thread that drives the engine may call them.

// Returns the group ranks that the operation waits for, in ascending order.
std::vector<int> missingFor(const Op& op);
// Each returns the group ranks that a timeout of the operation blames.
std::vector<int> lateFor(const CollectiveOp& op);
std::vector<int> lateFor(const MessageOp& op);
// Returns why a peer's part of the operation will not come; nothing where it may come.
std::optional<Failure> cutShort(const Op& op);
// Returns whether no task can go on until Mailbox::takeRunnable() names the operation.
bool sleeps(const Op& op);
// Returns whether all tasks that send have ended.
bool hasSent(const MessageOp& op);

// Returns the group ranks of the departures.
RankSet setOf(const std::vector<Departure>& gone);
// Each returns whether the condition, or a task of the operation, waits for ranks that are gone.
bool lacks(const Condition& waiting, const RankSet& gone);
bool lacks(const Op& op, const RankSet& gone);
// Returns the failure of an operation for which ranks that are gone are missing. It blames all
// ranks of the group that have died; where none of these is missing, it blames the missing ones
// that left.
Failure peerFailed(const Membership& members, const Op& op, const std::vector<Departure>& gone);

}  // namespace bluefog
