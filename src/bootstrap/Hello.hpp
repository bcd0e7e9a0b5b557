#pragma once

#include <optional>
#include <string>

namespace bluefog {

// A Hello is what a process says first when it calls another one of its host.
// Thread safety: a plain value.
struct Hello {
  // This value of `rank` says that the call makes no link. The caller only asks whether the other
  // process listens, and shows its epoch.
  static constexpr int kKnocks = -1;

  std::string secret;  // of the record of the process that is called
  std::string epoch;   // the name of the caller's Epoch
  std::string id;      // of the caller's record
  int rank = 0;        // the caller's rank in the epoch, or kKnocks

  std::string encode() const;
  // Returns nothing if the text is not one that encode() returns.
  static std::optional<Hello> decode(const std::string& text);
};

}  // namespace bluefog
