#include "transport/messages/MessageFailures.hpp"

#include <string>
#include <vector>

namespace bluefog {

CancelReason cancelReasonOf(const Membership& members, const Failure& failure) {
  return {failure.cause, members.among(failure.ranks)};
}

Failure canceledBy(const Membership& members, int peer, const CancelReason& theirs) {
  const int who = members.global(peer);
  const std::string rank = "rank " + std::to_string(who);
  std::vector<int> blamed = members.global(theirs.blamed.below(members.size));
  if (blamed.empty()) {
    blamed.push_back(who);
  }
  if (theirs.why == Cause::kMismatch) {
    return {theirs.why, blamed, "ranks did not agree on the matching operation of " + rank};
  }
  const bool for_another = blamed != std::vector{who};
  return {theirs.why, blamed,
          rank + " had already given up the matching operation" +
              (for_another ? ": nothing from " + rankList(blamed) : "")};
}

Failure passedBySource(const Membership& members, const ReceiveState& message) {
  const std::string source = std::to_string(members.global(message.source));
  const std::string self = std::to_string(members.global(members.rank));
  return {Cause::kMismatch,
          {members.global(message.source)},
          "ranks do not agree on the edge " + source + " -> " + self + ": rank " + self +
              " receives along it in call #" + std::to_string(message.key.number) + ", and rank " +
              source + " has made that call without sending to it"};
}

Failure notReceived(const Membership& members, int receiver, const Signature& sent,
                    uint64_t number) {
  const std::string source = std::to_string(members.global(members.rank));
  const std::string other = std::to_string(members.global(receiver));
  return {Cause::kMismatch,
          {members.global(receiver)},
          "ranks do not agree on the edge " + source + " -> " + other + ": rank " + source +
              " sent along it in call #" + std::to_string(number) + ", " + name(sent) +
              details(sent) + ", and rank " + other +
              " has made that call without receiving from it"};
}

Failure refusedLate(const Membership& members, int peer, const ControlMessage& refusal) {
  const int who = members.global(peer);
  const std::string message = refusal.number > 0
                                  ? "message in call #" + std::to_string(refusal.number)
                                  : "message #" + std::to_string(operationOf(refusal.id));
  return {Cause::kMismatch,
          {who},
          "rank " + std::to_string(who) + " could not take this rank's " + message +
              ": it called " + name(refusal.signature) + details(refusal.signature)};
}

}  // namespace bluefog
