#pragma once

namespace bluefog {

// What a frontend throws when its program is interrupted (Ctrl-C) is also one of these.
class Interruption {
 public:
  virtual ~Interruption() = default;
};

}  // namespace bluefog
