#pragma once

#include <string>

#include "transport/Failure.hpp"

namespace bluefog {

// Whose window it is, as what its calls raise begins.
struct WindowLabel {
  Membership members;
  std::string name;

  std::string who(const char* op) const { return members.who() + " " + op + " '" + name + "': "; }
};

}  // namespace bluefog
