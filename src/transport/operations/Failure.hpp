#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <vector>

#include "core/Error.hpp"
#include "transport/memory/Frame.hpp"

namespace bluefog {

struct Op;

// This rank's place in its group, and the group's place in the job.
struct Membership {
  int rank = 0;
  int size = 1;
  std::string group;              // empty for the default group
  std::vector<int> global_ranks;  // of each group rank

  // "[bluefog] rank 3/8", or "[bluefog] rank 5 (1/2 of group 7)".
  std::string who() const;
  int global(int group_rank) const { return global_ranks[static_cast<size_t>(group_rank)]; }
  std::vector<int> global(const std::vector<int>& group_ranks) const;
  // Those of these global ranks that belong to the group, by their group ranks.
  RankSet among(const std::vector<int>& global) const;
};

// Why an operation failed, told so that every rank can say the same: it names ranks by their global
// number and does not say who tells it.
struct Failure {
  Cause cause;
  std::vector<int> ranks;  // global
  std::string reason;
  bool has_left = false;  // it is that those ranks have left in order
};

Failure timedOut(const Membership& members, const Op& op, const std::vector<int>& missing);
// `theirs` is what `peer` called where this rank called `op`.
Failure mismatch(const Membership& members, const Op& op, int peer, const Signature& theirs);
// Rank `from` of the group sends `bytes` to rank `to`, which expects `expected`.
Failure sizesDiffer(const Membership& members, const Op& op, int from, int to, size_t bytes,
                    size_t expected);
// Nothing that `peer` writes can be relied on.
Failure damaged(const Membership& members, int peer, const std::string& what);
Failure aborted(const std::string& why);
// Something in the operation itself failed on this rank: memory that cannot be had.
Failure failedHere(const Membership& members, const std::exception& error);

// "allreduce #1234 SUM float32[4096]".
std::string titleOf(const Membership& members, const Op& op);
// "[bluefog] rank 3/8 allreduce #1234 SUM float32[4096]: "
std::string prefix(const Membership& members, const Op& op);
Error errorOf(const Membership& members, const Op& op, const Failure& failure);

}  // namespace bluefog
