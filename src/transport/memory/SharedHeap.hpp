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

// A SharedHeap is the part of the segment in which this rank allocates results that the other ranks
// of its host can read. A message whose tensor lies here is offered to them in place, without a
// copy. It owns its mapping, and lives as long as any block in it, also beyond the group. A forked
// child gets a private copy of what was allocated at the fork.
// Thread safety: any thread may call any method.
class SharedHeap final : public Heap {
 public:
  // Returns null if the segment has no heaps, or the process has no addresses for one.
  static std::shared_ptr<SharedHeap> make(const Segment& segment, int rank);
  // Takes over the mapping of a whole heap. `find_room` has the system find memory for a range of
  // it.
  SharedHeap(Mapping memory, Segment::FindRoom find_room);

  // Returns a block that starts at a page and shares no page with another block, or null if there
  // is no memory for it.
  std::byte* take(size_t bytes) override;
  void giveBack(std::byte* block, size_t bytes) override;
  // Returns the distance in bytes from the start of the heap, or nothing if not all of the data is
  // in it.
  std::optional<uint64_t> placeOf(const std::byte* data, size_t bytes) const override;
  void copy(std::byte* to, const std::byte* from, size_t bytes) override;

 private:
  // fetch() and letGo() take memory from the system and give it back by whole huge pages.
  void fetch(Range range);
  void letGo(Range range);
  void copyForChild();
  void becomeCopy();

  Mapping memory_;
  const Segment::FindRoom find_room_;
  const OwnProcess process_;
  std::mutex mutex_;
  FreeRanges free_;
  std::vector<bool> is_fetched_;  // by huge page: whether fetch() has touched it
  Mapping copy_;                  // the child's copy, which exists only during a fork
  AtFork at_fork_;                // declared last, so that no fork sees a half-destroyed heap
};

}  // namespace bluefog
