#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/Fd.hpp"
#include "transport/FreeRanges.hpp"
#include "transport/Segment.hpp"
#include "transport/Segments.hpp"

namespace bluefog {

// Where the windows of a group lie on this host: each rank's room, in which its peers write, and
// its heap, which they read. Any thread may use it.
class Grounds {
 public:
  Grounds(std::shared_ptr<const Segments> segments, int rank);

  // Of this rank's room, in pages of its own: zeroed, and without memory until it is written to.
  // Nothing where there is no place.
  std::optional<uint64_t> take(size_t bytes);
  void giveBack(uint64_t at, size_t bytes);
  // Those of a rank of this host. Throw std::runtime_error where they cannot be mapped.
  std::byte* room(int rank) { return mapped(rooms_, Segment::Area::kRoom, rank); }
  const std::byte* heap(int rank) { return mapped(heaps_, Segment::Area::kHeap, rank); }

 private:
  std::byte* mapped(std::vector<Mapping>& mappings, Segment::Area area, int rank);

  const std::shared_ptr<const Segments> segments_;
  const int rank_;
  std::mutex mutex_;
  FreeRanges free_;
  std::vector<Mapping> rooms_;
  std::vector<Mapping> heaps_;
};

}  // namespace bluefog
