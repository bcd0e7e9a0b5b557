#pragma once

#include <array>
#include <chrono>
#include <cstddef>

#include "core/Reduce.hpp"

namespace bluefog {

// How the slots of one ring are best written. Between cores that share a cache: through it. A slot
// whose lines lie in the cache of a far core (another socket, another core complex) costs more to
// take back than memory does: there, past the caches. Nobody can be asked which it is, and in a
// virtual machine it changes: so now and then the taking back is timed.
class Passage {
 public:
  // For `bytes` at that place of a free slot. What is there is lost.
  Stores stores(std::byte* place, size_t bytes);

 private:
  Stores found_ = Stores::kCached;
  std::chrono::steady_clock::time_point next_look_{};
  std::chrono::steady_clock::time_point last_{};
  int warm_ = 0;  // calls since a pause
  // Bytes a second. The middle one counts: a look may be interrupted, or find a slot whose far
  // reader has dropped it.
  std::array<double, 3> rates_{};
  size_t looks_ = 0;
};

}  // namespace bluefog
