#pragma once

#include <chrono>
#include <optional>

namespace bluefog {

// A SlotMutex is one rank's access to the mutex of a slot, which excludes the slot's writer and its
// owner from each other. MappedMutex takes it in shared memory, MessageMutex by messages.
// Thread safety: any thread may call any method. All threads of a rank count as one holder.
class SlotMutex {
 public:
  virtual ~SlotMutex() = default;

  // Returns the rank that holds it, or nothing if this rank holds it now, because it was free or
  // its holder was dead.
  virtual std::optional<int> take() = 0;
  // Sleeps until that holder may have let go, or until the limit has passed.
  virtual void await(int holder, std::chrono::nanoseconds limit) = 0;
  virtual void letGo() noexcept = 0;
};

}  // namespace bluefog
