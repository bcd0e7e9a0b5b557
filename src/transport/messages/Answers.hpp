#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "transport/memory/Segment.hpp"

namespace bluefog {

// What two ranks answer each other: a ring for each direction, and what has found no room in one.
class Answers {
 public:
  Answers(GrantRing& out, GrantRing& in) : out_(&out), in_(&in) {}

  void owe(const Grant& grant) { owed_.push_back(grant); }
  bool owesAny() const { return !owed_.empty(); }
  // As many of those owed as there is room for; whether any.
  bool send();

  // Whether the peer's side of the ring can be relied on.
  bool isSound() const;
  bool anyHasCome() const {
    return in_->written.load(std::memory_order_acquire) !=
           in_->read.load(std::memory_order_relaxed);
  }
  // The next one that has come.
  std::optional<Grant> take();

 private:
  GrantRing* out_;
  GrantRing* in_;
  std::deque<Grant> owed_;
};

}  // namespace bluefog
