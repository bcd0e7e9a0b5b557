#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/Fd.hpp"
#include "core/FreeRanges.hpp"
#include "core/OwnProcess.hpp"
#include "transport/memory/Segment.hpp"
#include "transport/memory/Segments.hpp"

namespace bluefog {

class WindowMemory;

// Memory in which the ranks of a host write. Given back when it ends.
class WindowBlock {
 public:
  WindowBlock(std::shared_ptr<WindowMemory> memory, uint64_t at, size_t bytes)
      : memory_(std::move(memory)), at_(at), bytes_(bytes) {}
  WindowBlock(const WindowBlock&) = delete;
  WindowBlock& operator=(const WindowBlock&) = delete;
  ~WindowBlock();

  uint64_t at() const { return at_; }
  std::byte* data() const;

 private:
  const std::shared_ptr<WindowMemory> memory_;
  const uint64_t at_;
  const size_t bytes_;
};

// Where the windows of a group lie on this host: each rank's room, in which its peers write, and
// its heap, which they read. A room begins with a page that says whether its rank has left. Any
// thread may use it.
class WindowMemory : public std::enable_shared_from_this<WindowMemory> {
 public:
  WindowMemory(std::shared_ptr<const Segments> segments, int rank);

  // Of this rank's room, in pages of its own: zeroed, and without memory until it is written to.
  // Null where there is no place.
  std::unique_ptr<WindowBlock> take(size_t bytes);
  // This rank leaves the group: nobody needs to write in its room any more.
  void leave();
  const std::atomic<uint32_t>& hasLeft(int rank) {
    return *reinterpret_cast<const std::atomic<uint32_t>*>(room(rank));
  }
  // Those of a rank of this host. Throw std::runtime_error where they cannot be mapped.
  std::byte* room(int rank) { return mapped(rooms_, Segment::Area::kRoom, rank); }
  const std::byte* heap(int rank) { return mapped(heaps_, Segment::Area::kHeap, rank); }

 private:
  friend class WindowBlock;

  void giveBack(uint64_t at, size_t bytes);
  std::byte* own() { return room(rank_); }
  std::byte* mappedOwn();  // null where it has not been needed yet
  std::byte* mapped(std::vector<Mapping>& mappings, Segment::Area area, int rank);

  const std::shared_ptr<const Segments> segments_;
  const int rank_;
  const OwnProcess process_;
  const Segment::FindRoom find_room_;
  std::mutex mutex_;
  FreeRanges free_;
  std::vector<Mapping> rooms_;
  std::vector<Mapping> heaps_;
};

}  // namespace bluefog
