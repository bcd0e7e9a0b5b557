#include "transport/operations/Failure.hpp"

#include <algorithm>

#include "transport/operations/Op.hpp"

namespace bluefog {
namespace {

// Returns the details with the root's global rank, since all ranks are told the same text.
std::string detailsOf(const Membership& members, const Signature& signature) {
  const bool has_root = signature.root >= 0 && signature.root < members.size;
  return details(signature, has_root ? members.global(signature.root) : signature.root);
}

std::string described(const Membership& members, const Signature& signature) {
  return name(signature) + detailsOf(members, signature);
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

RankSet Membership::among(const std::vector<int>& ranks) const {
  RankSet result;
  for (int rank = 0; rank < size; ++rank) {
    if (std::find(ranks.begin(), ranks.end(), global(rank)) != ranks.end()) {
      result.add(rank);
    }
  }
  return result;
}

std::string Membership::who() const {
  const std::string place = std::to_string(rank) + "/" + std::to_string(size);
  return group.empty() ? "[bluefog] rank " + place
                       : "[bluefog] rank " + std::to_string(global(rank)) + " (" + place +
                             " of group " + group + ")";
}

Failure timedOut(const Membership& members, const Op& op, const std::vector<int>& missing) {
  std::string reason = "timeout after " + inSeconds(op.deadline.limit());
  const std::vector<int> ranks = members.global(missing);
  if (ranks.empty()) {
    reason += "; by now all that it waits for have come, but it has not ended";
  } else {
    reason += "; nothing from " + rankList(ranks);
  }
  return {Cause::kTimeout, ranks, reason};
}

Failure mismatch(const Membership& members, const Op& op, int peer, const Signature& theirs) {
  const int mine = members.global(members.rank);
  const int other = members.global(peer);
  // The lower rank comes first, so that both sides tell it in the same words.
  const auto [low, high] = std::minmax(mine, other);
  const auto called = [&](int rank) {
    return "rank " + std::to_string(rank) + " called " +
           described(members, rank == mine ? op.signature : theirs);
  };
  std::string reason = called(low) + ", " + called(high);
  if (described(members, op.signature) == described(members, theirs)) {
    reason = rankList({low, high}) + " called " + described(members, theirs) +
             (isBetweenNeighbors(theirs.kind) ? ", named, split or shaped differently"
                                              : ", split or shaped differently");
  }
  return {Cause::kMismatch, {low, high}, "ranks do not agree on the operation: " + reason};
}

Failure sizesDiffer(const Membership& members, const Op& op, int from, int to, size_t bytes,
                    size_t expected) {
  const int sender = members.global(from);
  const int receiver = members.global(to);
  const size_t each = width(op.signature.dtype);
  return {Cause::kMismatch,
          {std::min(sender, receiver), std::max(sender, receiver)},
          "ranks do not agree on the sizes: rank " + std::to_string(sender) + " sends " +
              std::to_string(bytes / each) + " elements to rank " + std::to_string(receiver) +
              ", which expects " + std::to_string(expected / each)};
}

Failure damaged(const Membership& members, int peer, const std::string& what) {
  const int who = members.global(peer);
  return {Cause::kAborted, {who}, "rank " + std::to_string(who) + " has damaged " + what};
}

Failure aborted(const std::string& why) {
  return {Cause::kAborted, {}, why + "; make a new group"};
}

Failure failedHere(const Membership& members, const std::exception& error) {
  const int rank = members.global(members.rank);
  const std::string what = error.what();  // torch appends a stack trace
  return {Cause::kAborted,
          {rank},
          "rank " + std::to_string(rank) + " broke off: " + what.substr(0, what.find('\n'))};
}

std::string titleOf(const Membership& members, const Op& op) {
  return op.title.empty() ? name(op.signature) + (" #" + std::to_string(op.titleNumber())) +
                                detailsOf(members, op.signature)
                          : op.title;
}

std::string prefix(const Membership& members, const Op& op) {
  return members.who() + " " + titleOf(members, op) + ": ";
}

Error errorOf(const Membership& members, const Op& op, const Failure& failure) {
  const int self = members.global(members.rank);
  const bool is_late =
      failure.cause == Cause::kTimeout &&
      std::find(failure.ranks.begin(), failure.ranks.end(), self) != failure.ranks.end();
  return {failure.cause, failure.ranks,
          prefix(members, op) + failure.reason + (is_late ? "; this rank came too late" : "")};
}

}  // namespace bluefog
