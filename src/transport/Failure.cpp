#include "transport/Failure.hpp"

#include <cstdio>

#include "transport/Op.hpp"

namespace bluefog {
namespace {

std::string seconds(std::chrono::milliseconds limit) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(limit.count()) / 1000);
  return text;
}

std::string called(int rank, const Signature& signature) {
  return "rank " + std::to_string(rank) + " called " + name(signature.kind) + details(signature);
}

}  // namespace

std::vector<int> Membership::global(const std::vector<int>& group_ranks) const {
  std::vector<int> result;
  result.reserve(group_ranks.size());
  for (int rank : group_ranks) {
    result.push_back(global(rank));
  }
  return result;
}

Failure timedOut(const Membership& members, const Op& op, const std::vector<int>& missing) {
  std::string reason = "timed out after " + seconds(op.deadline.limit());
  const std::vector<int> ranks = members.global(missing);
  if (!ranks.empty()) {
    reason += "; nothing from " + rankList(ranks);
  }
  return {Cause::kTimeout, ranks, reason};
}

Failure mismatch(const Membership& members, const Op& op, int peer, const Signature& theirs) {
  const int mine = members.global(members.rank);
  const int other = members.global(peer);
  // The lower rank first, so that both sides tell it in the same words.
  const std::string reason = mine < other
                                 ? called(mine, op.signature) + ", " + called(other, theirs)
                                 : called(other, theirs) + ", " + called(mine, op.signature);
  return {Cause::kMismatch,
          {std::min(mine, other), std::max(mine, other)},
          "ranks do not agree on the operation: " + reason};
}

Failure aborted(const std::string& why) {
  return {Cause::kAborted, {}, why};
}

std::string prefix(const Membership& members, const Op& op) {
  std::string text = "[bluefog] rank " + std::to_string(members.global(members.rank)) + "/" +
                     std::to_string(members.size);
  if (!members.group.empty()) {
    text += " group " + members.group;
  }
  text += std::string(" ") + (op.title != nullptr ? op.title : name(op.signature.kind));
  return text + " #" + std::to_string(op.sequence) + details(op.signature) + ": ";
}

Error errorOf(const Membership& members, const Op& op, const Failure& failure) {
  return {failure.cause, failure.ranks, prefix(members, op) + failure.reason};
}

}  // namespace bluefog
