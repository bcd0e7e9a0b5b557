#pragma once

#include <chrono>

namespace bluefog {

// A call of a window that waits for other threads sleeps this long before it looks after its
// caller's business, such as Ctrl-C.
inline constexpr std::chrono::milliseconds kSlice{20};

}  // namespace bluefog
