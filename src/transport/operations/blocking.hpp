#pragma once

#include <optional>
#include <vector>

#include "bootstrap/Links.hpp"
#include "core/RankSet.hpp"
#include "transport/operations/CollectiveOp.hpp"
#include "transport/operations/Failure.hpp"
#include "transport/operations/MessageOp.hpp"

namespace bluefog {

// What an operation waits for, told by the conditions that its tasks are suspended at.

// The group ranks that it lacks; those of them that a timeout is to blame.
std::vector<int> missingFor(const Op& op);
std::vector<int> lateFor(const CollectiveOp& op);
std::vector<int> lateFor(const MessageOp& op);
// Why a peer's part of it will not come.
std::optional<Failure> cutShort(const Op& op);
// Whether nobody needs to look until Mailbox::takeRunnable() names it.
bool sleeps(const Op& op);
bool hasSent(const MessageOp& op);

RankSet setOf(const std::vector<Departure>& gone);
// Whether it cannot go on without one of those.
bool lacks(const Condition& waiting, const RankSet& gone);
bool lacks(const Op& op, const RankSet& gone);
// How it fails for that. All who died in the group are blamed; where none of them is missing, those
// that left and are.
Failure peerFailed(const Membership& members, const Op& op, const std::vector<Departure>& gone);

}  // namespace bluefog
