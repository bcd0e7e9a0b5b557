#include "transport/Passage.hpp"

#include <algorithm>
#include <cstdint>

#include "transport/Ring.hpp"

namespace bluefog {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenLooks{10};
// The fastest of so many counts: the others may have been interrupted.
constexpr int kLooks = 3;
constexpr size_t kWorthALook = 4 * 1024;
// Bytes a second. Measured: 24e9 and more within a cache, 6e9 to 13e9 where writing past the
// caches made all_reduce twice as fast.
constexpr double kFar = 15e9;

// Bytes a second at which these cache lines become this core's.
double takeBack(std::byte* place, size_t bytes) {
  const Clock::time_point begin = Clock::now();
  for (size_t at = 0; at + sizeof(uint64_t) <= bytes; at += RingShape::kLine) {
    *reinterpret_cast<volatile uint64_t*>(place + at) = 0;
  }
  const std::chrono::duration<double> took = Clock::now() - begin;
  return static_cast<double>(bytes) / took.count();
}

}  // namespace

Stores Passage::stores(std::byte* place, size_t bytes) {
  if (bytes < kWorthALook) {
    return Stores::kCached;
  }
  const Clock::time_point now = Clock::now();
  if (now < next_look_) {
    return found_;
  }
  fastest_ = std::max(fastest_, takeBack(place, bytes));
  if (++looks_ == kLooks) {
    found_ = fastest_ < kFar ? Stores::kStreamed : Stores::kCached;
    next_look_ = now + kBetweenLooks;
    looks_ = 0;
    fastest_ = 0;
  }
  return Stores::kCached;
}

}  // namespace bluefog
