#include "transport/tuning/StorePolicy.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

namespace bluefog {
namespace {

constexpr size_t kLine = 64;  // bytes of a cache line
// The first kTrials of each kPeriod frames are trials, and half of them go the other way.
constexpr unsigned kPeriod = 256;
constexpr unsigned kTrials = 8;

// The stores that are not in use must be faster by this factor to be chosen.
constexpr double kClearly = 1.3;

// Returns whether a trial uses the stores that are not preferred. Those trials are neither always
// in the same slots of a ring nor always after one of the same kind.
bool goesTheOtherWay(unsigned trial) {
  return std::popcount(trial % kPeriod) % 2 == 1;
}

Stores other(Stores stores) {
  return stores == Stores::kCached ? Stores::kStreamed : Stores::kCached;
}

}  // namespace

StorePolicy::Duration StorePolicy::Times::sum() const {
  return std::accumulate(taken_.begin(), taken_.end(), Duration()) -
         *std::max_element(taken_.begin(), taken_.end());
}

bool StorePolicy::isTrial() const {
  return tuning::isAdaptive() && sent_ % kPeriod < kTrials;
}

Stores StorePolicy::stores() const {
  return isTrial() && goesTheOtherWay(sent_) ? other(preferred()) : preferred();
}

void StorePolicy::write(std::byte* to, const std::byte* from, size_t bytes) {
  const Stores stores = this->stores();
  if (bytes < kTimed || !isTrial()) {
    copyBytes(to, from, bytes, stores);
    return;
  }
  const Clock::time_point begin = now_();
  copyBytes(to, from, bytes, stores);
  way(stores).writing.note((now_() - begin) * kTimed / bytes);
  is_timed_ = true;
  choose();
}

StoreSample StorePolicy::sendOff(int readers) {
  const Stores stores = this->stores();
  ++sent_;
  if (!std::exchange(is_timed_, false)) {
    return StoreSample::kNone;
  }
  readers_ = readers;
  return stores == Stores::kStreamed ? StoreSample::kStreamed : StoreSample::kCached;
}

// The bytes that this reads have to be read anyway, and lie in this core's cache afterwards.
void StorePolicy::read(StoreSample written, const std::byte* at) {
  const Clock::time_point begin = now_();
  for (size_t at_line = 0; at_line < kTimed; at_line += kLine) {
    static_cast<void>(*static_cast<const volatile std::byte*>(at + at_line));
  }
  way(written == StoreSample::kStreamed ? Stores::kStreamed : Stores::kCached)
      .reading.note(now_() - begin);
  choose();
}

void StorePolicy::choose() {
  if (!cached_.isKnown() || !streamed_.isKnown()) {
    return;
  }
  const Stores now = preferred();
  if (way(other(now)).whole(readers_) * kClearly < way(now).whole(readers_)) {
    preferred_.store(other(now), std::memory_order_relaxed);
  }
}

}  // namespace bluefog
