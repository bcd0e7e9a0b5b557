#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "transport/memory/Segment.hpp"

namespace bluefog {

// What two ranks answer each other: a ring for each direction, and what has found no room in one.
class ControlChannel {
 public:
  ControlChannel(ControlRing& out, ControlRing& in) : out_(&out), in_(&in) {}

  void owe(const ControlMessage& control) { owed_.push_back(control); }
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
  std::optional<ControlMessage> take();

 private:
  ControlRing* out_;
  ControlRing* in_;
  std::deque<ControlMessage> owed_;
};

}  // namespace bluefog
