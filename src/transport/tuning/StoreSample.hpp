#pragma once

#include <cstdint>

namespace bluefog {

// A StoreSample says with which kind of stores a frame was written, if its reader should time the
// reading. Frames carry it.
enum class StoreSample : uint8_t { kNone, kCached, kStreamed };

}  // namespace bluefog
