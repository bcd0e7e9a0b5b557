#pragma once

#include <string>
#include <vector>

#include "core/Error.hpp"

namespace bluefog {

// Why a rank gives up while a group is being made, as it tells the others.
struct Reason {
  Cause cause = Cause::kPeerFailed;
  std::vector<int> ranks;  // that are blamed
  std::string text;

  std::string encode() const;
  // Of anything: what cannot be read is left empty.
  static Reason decode(const std::string& encoded);
};

}  // namespace bluefog
