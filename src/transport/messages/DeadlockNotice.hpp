#pragma once

#include <cstdint>

#include "transport/memory/Frame.hpp"

namespace bluefog {

// A DeadlockNotice tells a rank that one of its operations waits in vain: the rank that it waits
// for waits itself, in another operation, for it.
//
// Thread safety: a value; one thread at a time.
struct DeadlockNotice {
  uint64_t waits;    // the sequence number of the operation that waits in vain
  Signature called;  // what the other rank has called instead
};

}  // namespace bluefog
