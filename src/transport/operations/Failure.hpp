#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <vector>

#include "core/Error.hpp"
#include "transport/memory/Frame.hpp"

namespace bluefog {

struct Op;

// A Membership says which place this rank has in its group, and the group in the job.
//
// Thread safety: it does not change once its group is made; any thread may read it.
struct Membership {
  int rank = 0;
  int size = 1;
  std::string group;              // empty for the default group
  std::vector<int> global_ranks;  // by group rank

  // Returns how errors begin: "[bluefog] rank 3/8", or "[bluefog] rank 5 (1/2 of group 7)".
  std::string who() const;
  int global(int group_rank) const { return global_ranks[static_cast<size_t>(group_rank)]; }
  std::vector<int> global(const std::vector<int>& group_ranks) const;
  // Returns the group ranks of those of the global ranks that belong to the group.
  RankSet among(const std::vector<int>& global) const;
};

// A Failure says why an operation failed, in words that are the same on every rank: it names ranks
// by their global numbers, and does not say which rank tells it.
//
// Thread safety: a value; one thread at a time.
struct Failure {
  Cause cause;
  std::vector<int> ranks;  // global
  std::string reason;
  bool has_left = false;  // the ranks have left in order, and have not died
};

// Returns the failure of an operation whose deadline has passed while those group ranks are
// missing.
Failure timedOut(const Membership& members, const Op& op, const std::vector<int>& missing);
// Returns the failure of ranks that met in unlike calls: `theirs` is what `peer` has called where
// this rank has called `op`.
Failure mismatch(const Membership& members, const Op& op, int peer, const Signature& theirs);
// Returns the failure of unlike sizes: group rank `from` sends so many bytes to group rank `to`,
// which expects `expected` bytes.
Failure sizesDiffer(const Membership& members, const Op& op, int from, int to, size_t bytes,
                    size_t expected);
// Returns the failure of a peer that has written what a sound peer never writes: nothing that comes
// from it can be relied on.
Failure damaged(const Membership& members, int peer, const std::string& what);
// Returns the failure of a group that was ended on this rank.
Failure aborted(const std::string& why);
// Returns the failure of an operation that threw on this rank, for example for lack of memory.
Failure failedHere(const Membership& members, const std::exception& error);

// Returns how errors name an operation: "allreduce #1234 SUM float32[4096]".
std::string titleOf(const Membership& members, const Op& op);
// Returns how the errors of an operation begin: "[bluefog] rank 3/8 allreduce #1234 SUM
// float32[4096]: "
std::string prefix(const Membership& members, const Op& op);
// Returns the error that this rank's program is given for the failure of an operation.
Error errorOf(const Membership& members, const Op& op, const Failure& failure);

}  // namespace bluefog
