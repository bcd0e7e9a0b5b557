#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace bluefog {

// A SegmentList describes memory in one or several places as one sequence of bytes. A Piece has
// `bytes`, which is a whole number of elements. Its part(at, length) is a stretch of it, and
// a.isFollowedBy(b) says that b begins where a ends. The list does not own the memory.
// Thread safety: a plain value.
template <class Piece>
class SegmentList {
 public:
  SegmentList() = default;
  explicit SegmentList(Piece piece) { add(std::move(piece)); }
  explicit SegmentList(std::vector<Piece> pieces) {
    placed_.reserve(pieces.size());
    for (Piece& piece : pieces) {
      add(std::move(piece));
    }
  }

  void add(Piece piece) {
    const size_t end = bytes() + piece.bytes;
    if (!placed_.empty() && placed_.back().piece.isFollowedBy(piece)) {
      placed_.back().piece.bytes += piece.bytes;
      placed_.back().end = end;
    } else {
      placed_.push_back({std::move(piece), end});
    }
  }
  // Returns the only piece, or null unless there is exactly one.
  const Piece* single() const { return placed_.size() == 1 ? &placed_.front().piece : nullptr; }
  size_t bytes() const { return placed_.empty() ? 0 : placed_.back().end; }
  bool operator==(const SegmentList& other) const = default;

  // Calls visit(part, at) for each contiguous part of [begin, begin + bytes), where `at` is the
  // part's distance from `begin` in bytes.
  template <class Visit>
  void forEach(size_t begin, size_t bytes, Visit visit) const {
    auto place = std::upper_bound(placed_.begin(), placed_.end(), begin,
                                  [](size_t at, const Placed& it) { return at < it.end; });
    for (size_t at = 0; at < bytes; ++place) {
      const size_t left = place->end - (begin + at);
      const size_t length = std::min(left, bytes - at);
      if (length > 0) {
        visit(place->piece.part(place->piece.bytes - left, length), at);
      }
      at += length;
    }
  }

 private:
  struct Placed {
    Piece piece;
    size_t end;  // bytes up to the end of this piece, with the pieces before it

    bool operator==(const Placed& other) const = default;
  };
  std::vector<Placed> placed_;
};

// A Span is memory that may be written. It does not own the memory.
struct Span {
  std::byte* data;
  size_t bytes;

  Span part(size_t at, size_t length) const { return {data + at, length}; }
  bool isFollowedBy(const Span& other) const { return data + bytes == other.data; }
};
using Spans = SegmentList<Span>;

// A ConstSpan is memory that is only read. It does not own the memory.
struct ConstSpan {
  const std::byte* data;
  size_t bytes;

  bool operator==(const ConstSpan& other) const = default;
  ConstSpan part(size_t at, size_t length) const { return {data + at, length}; }
  bool isFollowedBy(const ConstSpan& other) const { return data + bytes == other.data; }
};
using ConstSpans = SegmentList<ConstSpan>;

}  // namespace bluefog
