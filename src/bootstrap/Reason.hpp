#pragma once

#include <string>
#include <vector>

#include "core/Error.hpp"

namespace bluefog {

// A Reason says why a rank gives up while a group is being made, in a form that it can send to the
// others.
// Thread safety: a plain value.
struct Reason {
  Cause cause = Cause::kPeerFailed;
  std::vector<int> ranks;  // the global ranks that are blamed
  std::string text;

  std::string encode() const;
  // Decodes any text; a part that cannot be read is left empty.
  static Reason decode(const std::string& encoded);
};

}  // namespace bluefog
