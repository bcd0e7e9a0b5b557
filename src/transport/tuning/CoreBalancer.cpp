#include "transport/tuning/CoreBalancer.hpp"

#include <array>

#include "transport/tuning/Tuning.hpp"

namespace bluefog {

CoreBalancer::CoreBalancer(CoreMap& map, int rank, int size, int here)
    : map_(map), rank_(rank), size_(size) {
  const int cores = Cores::usable().count();
  crowded_ = tuning::isAdaptive() && cores > 1 && here >= cores;
}

void CoreBalancer::takeOrMove(Time now) {
  const int core = Cores::current();
  if (core < 0 || core >= Cores::kMost) {
    return;
  }
  if (map_.of(rank_) != core) {
    map_.take(rank_, core);
    return;  // the others must see it first
  }
  const Cores usable = Cores::usable();
  const int emptier = emptierThan(core, usable);
  if (emptier != CoreMap::kNone && map_.mayMove(now)) {
    crowded_ = usable.moveTo(emptier);
    map_.take(rank_, emptier);
  }
}

// Returns the core with the fewest ranks, if it has at least two ranks fewer than `core`.
int CoreBalancer::emptierThan(int core, const Cores& usable) const {
  std::array<int, Cores::kMost> ranks{};
  for (int rank = 0; rank < size_; ++rank) {
    const int its_core = map_.of(rank);
    if (its_core >= 0 && its_core < Cores::kMost) {
      ++ranks[static_cast<size_t>(its_core)];
    }
  }
  int fewest = ranks[static_cast<size_t>(core)] - 1;
  int emptiest = CoreMap::kNone;
  if (fewest > 0) {
    for (int other = 0; other < Cores::kMost; ++other) {
      if (ranks[static_cast<size_t>(other)] < fewest && usable.has(other)) {
        fewest = ranks[static_cast<size_t>(other)];
        emptiest = other;
      }
    }
  }
  return emptiest;
}

}  // namespace bluefog
