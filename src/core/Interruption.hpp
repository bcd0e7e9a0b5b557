#pragma once

namespace bluefog {

// An Interruption is a base class of the exception that a frontend throws when the user interrupts
// the program (Ctrl-C). The core can catch it without knowing the frontend's language.
class Interruption {
 public:
  virtual ~Interruption() = default;
};

}  // namespace bluefog
