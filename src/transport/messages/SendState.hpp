#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/memory/Segment.hpp"

namespace bluefog {

// A SendState is one message on its way out of this rank.
//
// Thread safety: only the thread that drives the engine may use it.
struct SendState {
  int destination = 0;
  uint64_t id = 0;
  size_t bytes = 0;
  ControlMessage answer;    // the receiver's, once it has come
  bool is_sent = false;     // all of its frames are published
  bool is_offered = false;  // its announcement says where it lies in this rank's heap
};

}  // namespace bluefog
