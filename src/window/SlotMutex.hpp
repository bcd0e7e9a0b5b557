#pragma once

#include <chrono>
#include <optional>

namespace bluefog {

// Of a slot, for its writer and its owner: as one of the two has it.
class SlotMutex {
 public:
  virtual ~SlotMutex() = default;

  // The rank that holds it; nothing where it was free, or its holder is dead: it is this rank's
  // now.
  virtual std::optional<int> take() = 0;
  // Sleeps until that holder may have let go, or so long.
  virtual void await(int holder, std::chrono::nanoseconds limit) = 0;
  virtual void letGo() noexcept = 0;
};

}  // namespace bluefog
