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

// A WindowBlock is a part of this rank's window area, in which the ranks of this host write. Its
// destructor gives the memory back. It shares ownership of the WindowMemory.
// Thread safety: any thread may call any method.
class WindowBlock {
 public:
  WindowBlock(std::shared_ptr<WindowMemory> memory, uint64_t at, size_t bytes)
      : memory_(std::move(memory)), at_(at), bytes_(bytes) {}
  WindowBlock(const WindowBlock&) = delete;
  WindowBlock& operator=(const WindowBlock&) = delete;
  ~WindowBlock();

  // Returns the offset of the block in the rank's window area.
  uint64_t at() const { return at_; }
  std::byte* data() const;

 private:
  const std::shared_ptr<WindowMemory> memory_;
  const uint64_t at_;
  const size_t bytes_;
};

// WindowMemory is where the windows of a group lie on this host. It owns mappings of each rank's
// window area (`room`), in which the rank's peers write, and of each rank's heap, which they read.
// It shares ownership of those mappings of heaps that peers write to.
// A window area begins with a page that says whether its rank has left.
// Thread safety: any thread may call any method.
class WindowMemory : public std::enable_shared_from_this<WindowMemory> {
 public:
  WindowMemory(std::shared_ptr<const Segments> segments, int rank);

  // Returns a block of this rank's window area. It consists of whole pages, is zeroed, and takes no
  // memory until it is written to. Returns null if there is no room for it.
  std::unique_ptr<WindowBlock> take(size_t bytes);
  // Tells the ranks of this host that this rank leaves the group, so that nobody needs to write in
  // its window area any more.
  void leave();
  // Returns the word that a rank of this host sets when it leaves.
  const std::atomic<uint32_t>& hasLeft(int rank) {
    return *reinterpret_cast<const std::atomic<uint32_t>*>(room(rank));
  }
  // These return the window area and the heap of a rank of this host. They map them at the first
  // call, and throw std::runtime_error if they cannot.
  std::byte* room(int rank) { return mapped(rooms_, Segment::Area::kRoom, rank); }
  const std::byte* heap(int rank) { return mapped(heaps_, Segment::Area::kHeap, rank); }
  // Returns the heap of a rank of this host, in which the caller may write, with ownership of the
  // mapping. It fails as the two above.
  std::shared_ptr<std::byte> heapToWrite(int rank);

 private:
  friend class WindowBlock;

  void giveBack(uint64_t at, size_t bytes);
  std::byte* own() { return room(rank_); }
  std::byte* mappedOwn();  // null if it was not mapped yet
  std::byte* mapped(std::vector<Mapping>& mappings, Segment::Area area, int rank);
  Mapping map(Segment::Area area, int rank, int protection) const;

  const std::shared_ptr<const Segments> segments_;
  const int rank_;
  const OwnProcess process_;
  const Segment::FindRoom find_room_;
  std::mutex mutex_;
  FreeRanges free_;
  std::vector<Mapping> rooms_;
  std::vector<Mapping> heaps_;
  std::vector<std::shared_ptr<Mapping>> heaps_to_write_;
};

}  // namespace bluefog
