#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "transport/memory/Segment.hpp"
#include "transport/operations/Failure.hpp"

namespace bluefog {

// The failure that the group's ranks have agreed on. It is that of the collective with this
// sequence number and of all later ones.
struct GroupFailure {
  Failure failure;
  uint64_t sequence = 0;

  // For ranks of other hosts.
  std::string encode() const;
  static GroupFailure decode(const std::string& encoded);
};

// If there is one.
std::optional<GroupFailure> readGroupFailure(const GroupFailureCell& cell);
// Records `group_failure` unless another rank was first; returns what is recorded.
GroupFailure publishFirst(GroupFailureCell& cell, const GroupFailure& group_failure);

}  // namespace bluefog
