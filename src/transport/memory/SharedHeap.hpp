#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/AtFork.hpp"
#include "core/Fd.hpp"
#include "core/FreeRanges.hpp"
#include "core/Heap.hpp"
#include "core/OwnProcess.hpp"
#include "transport/memory/Segment.hpp"

namespace bluefog {

// This rank's memory that the other ranks of its host can read: what lies here is offered to them
// as it is, and nobody copies it. Lives as long as anything in it, also beyond the group. A forked
// child finds what was there at the fork, in memory of its own. Any thread may use it.
class SharedHeap final : public Heap {
 public:
  // Null where the segment has none, or there are no addresses for it.
  static std::shared_ptr<SharedHeap> make(const Segment& segment, int rank);
  SharedHeap(Mapping memory, Segment::FindRoom find_room);

  // In pages of its own. Null where there is no place.
  std::byte* take(size_t bytes) override;
  void giveBack(std::byte* block, size_t bytes) override;
  // The distance from where it begins.
  std::optional<uint64_t> placeOf(const std::byte* data, size_t bytes) const override;
  void copy(std::byte* to, const std::byte* from, size_t bytes) override;

 private:
  // Memory comes and goes by the huge page.
  void fetch(Range range);
  void letGo(Range range);
  void copyForChild();
  void becomeCopy();

  Mapping memory_;
  const Segment::FindRoom find_room_;
  const OwnProcess process_;
  std::mutex mutex_;
  FreeRanges free_;
  std::vector<bool> is_fetched_;  // each huge page
  Mapping copy_;                  // during a fork
  AtFork at_fork_;                // destroyed first
};

}  // namespace bluefog
