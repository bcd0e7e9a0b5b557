#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>

#include "transport/operations/Failure.hpp"

namespace bluefog {

// A LateMismatch is the failure of a message that had left before its receiver refused it. The
// operation that sent it may have ended by then.
//
// Thread safety: a value; one thread at a time.
struct LateMismatch {
  uint64_t sequence;  // of the operation that sent it
  Failure failure;
  bool is_of_call = false;    // whether the operation was a call of neighbors
  bool is_of_device = false;  // whether it was a notice; another failure then tells of its call
};

// The LateMismatches of a group wait here until the scheduler finds an operation that can tell
// them. Beyond a limit, later ones are dropped.
//
// Thread safety: only the thread that drives the engine may use it.
class LateMismatches {
 public:
  bool isEmpty() const { return mismatches_.empty(); }
  void add(LateMismatch mismatch);
  // Removes and returns the oldest one that is wanted.
  std::optional<LateMismatch> take(const std::function<bool(const LateMismatch&)>& wanted);
  // Forgets those of calls of neighbors.
  void dropThoseOfCalls();

 private:
  static constexpr size_t kMost = 64;

  std::deque<LateMismatch> mismatches_;
};

}  // namespace bluefog
