#pragma once

#include <chrono>

namespace bluefog {

// How long a wait of a window's call for other threads sleeps before it looks after its caller's
// business.
inline constexpr std::chrono::milliseconds kSlice{20};

}  // namespace bluefog
