#include "window/memory/PeerLiveness.hpp"

namespace bluefog {
namespace {

using std::chrono::steady_clock;

constexpr steady_clock::duration kBetweenLooks = std::chrono::milliseconds(5);

}  // namespace

bool PeerLiveness::hasEnded(int rank) const {
  const auto now = steady_clock::now().time_since_epoch().count();
  auto before = looked_.load(std::memory_order_relaxed);
  if (now - before > kBetweenLooks.count() &&
      looked_.compare_exchange_strong(before, now, std::memory_order_relaxed)) {
    look();
  }
  const auto at = static_cast<size_t>(rank);
  const std::atomic<uint32_t>* left = left_[at].load(std::memory_order_acquire);
  return ended_[at].load(std::memory_order_relaxed) ||
         (left != nullptr && left->load(std::memory_order_relaxed) != 0);
}

void PeerLiveness::look() const {
  for (size_t rank = 0; rank < processes_.size(); ++rank) {
    if (!processes_[rank].isNone() && processes_[rank].hasEnded()) {
      ended_[rank].store(true, std::memory_order_relaxed);
    }
  }
}

}  // namespace bluefog
