#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/memory/EventCount.hpp"

namespace bluefog {

// A RawRoom gives access to the window block of one rank's part of a raw window, as a rank of the
// same host sees it:
//
//    mark, EventCount of the owner | RawEdge x n, by the other rank
//
// Zeroed memory is the room of a part that is not open. A RawRoom owns nothing, and is cheap to
// copy.
// Thread safety: any thread of any process may call any method.
class RawRoom {
 public:
  static size_t bytesFor(int size) {
    return sizeof(RawHeader) + sizeof(RawEdge) * static_cast<size_t>(size);
  }
  explicit RawRoom(std::byte* memory) : memory_(memory) {}

  // These two say whether the part with that number is open. It is not if the memory belongs to
  // another window by now.
  bool isOpen(uint64_t number) const { return header().mark.load() == (kMark | number); }
  void setOpen(uint64_t number, bool is_open) const {
    header().mark.store(is_open ? kMark | number : 0);
  }
  // Wakes the owner, which waits for signals.
  EventCount& news() const { return header().news; }
  // Returns how many signals that rank has sent to the owner.
  std::atomic<uint64_t>& signals(int from) const { return edge(from).signals; }
  // Returns how many of the owner's calls write to that rank's part at this moment.
  std::atomic<uint32_t>& writing(int to) const { return edge(to).writing; }

 private:
  // Numbers are below 2^31, so no other content of the memory is likely to equal a mark.
  static constexpr uint64_t kMark = uint64_t{0xB1DE5EA7} << 32;

  struct RawHeader {
    alignas(64) std::atomic<uint64_t> mark;
    EventCount news;
  };
  // The two words have different writers, so each has a cache line of its own.
  struct RawEdge {
    alignas(64) std::atomic<uint64_t> signals;
    alignas(64) std::atomic<uint32_t> writing;
  };

  RawHeader& header() const { return *reinterpret_cast<RawHeader*>(memory_); }
  RawEdge& edge(int rank) const {
    return reinterpret_cast<RawEdge*>(memory_ + sizeof(RawHeader))[rank];
  }

  std::byte* memory_;
};

}  // namespace bluefog
