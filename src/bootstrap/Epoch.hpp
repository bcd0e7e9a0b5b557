#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bootstrap/RankRecord.hpp"

namespace bluefog {

// An Epoch is the time of one membership of a group whose members change. Its members know each
// other before they meet.
// Thread safety: a plain value.
struct Epoch {
  int64_t uuid = 0;                 // differs for each epoch of a process
  std::vector<RankRecord> members;  // by rank
  int rank = 0;                     // this process's

  // Makes the epoch of these processes, by the texts of their Endpoints' handles, which have the
  // order of the ranks. Throws std::invalid_argument, which names the handle, where one of them is
  // no handle of this version or comes twice, or `self` is not among them.
  static Epoch of(int64_t uuid, const std::vector<std::string>& handles, const RankRecord& self);

  int size() const { return static_cast<int>(members.size()); }
  // Returns a text that is the same for two processes only if they mean the same members, in the
  // same order, and the same uuid. It begins with the uuid.
  std::string name() const;
  // Returns the uuid in such a text.
  static std::string uuidIn(const std::string& name) { return name.substr(0, name.find(':')); }
  // Returns whether all members can share memory.
  bool isOnOneHost() const;
};

}  // namespace bluefog
