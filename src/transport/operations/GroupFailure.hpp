#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "transport/memory/Segment.hpp"
#include "transport/operations/Failure.hpp"

namespace bluefog {

// A GroupFailure is the failure that a group's ranks have agreed on. The collective with its
// sequence number failed for it, and so do all later ones.
//
// Thread safety: a value; one thread at a time.
struct GroupFailure {
  Failure failure;
  uint64_t sequence = 0;

  // encode() makes the text by which ranks of other hosts are told; decode() reads it.
  std::string encode() const;
  static GroupFailure decode(const std::string& encoded);
};

// Returns what is recorded in the cell; nothing where no rank has recorded a failure.
std::optional<GroupFailure> readGroupFailure(const GroupFailureCell& cell);
// Records the failure unless another rank was first. Returns what is recorded.
GroupFailure publishFirst(GroupFailureCell& cell, const GroupFailure& group_failure);

}  // namespace bluefog
