#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "transport/memory/Segment.hpp"

namespace bluefog {

// A ControlChannel carries the control messages between this rank and one peer: through one ring in
// shared memory for each direction. It owns the messages that have found no room in the ring yet.
//
// Thread safety: only the thread that drives the engine may use it.
class ControlChannel {
 public:
  ControlChannel(ControlRing& out, ControlRing& in) : out_(&out), in_(&in) {}

  // Adds a message for send() to write.
  void queue(const ControlMessage& control) { queued_.push_back(control); }
  bool hasQueued() const { return !queued_.empty(); }
  // Writes as many queued messages as the ring has room for. Returns whether it wrote any.
  bool send();

  // Returns whether the peer's cursor is one that a sound peer can have written.
  bool isSound() const;
  bool hasIncoming() const {
    return in_->written.load(std::memory_order_acquire) !=
           in_->read.load(std::memory_order_relaxed);
  }
  // Returns the next message from the peer, if one has come, and frees its place in the ring.
  std::optional<ControlMessage> take();

 private:
  ControlRing* out_;
  ControlRing* in_;
  std::deque<ControlMessage> queued_;
};

}  // namespace bluefog
