#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace bluefog {

// Memory in one or several places, seen as one after the other. A Piece has `bytes`, a whole number
// of elements, part(at, length), a stretch of itself, and isFollowedBy(another): the two are one.
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
  // Null unless there is exactly one.
  const Piece* single() const { return placed_.size() == 1 ? &placed_.front().piece : nullptr; }
  size_t bytes() const { return placed_.empty() ? 0 : placed_.back().end; }
  bool operator==(const SegmentList& other) const = default;

  // visit(part, at) for each stretch of [begin, begin + bytes), which is `at` bytes after its
  // begin.
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
    size_t end;  // with those before it, in bytes

    bool operator==(const Placed& other) const = default;
  };
  std::vector<Placed> placed_;
};

struct Span {
  std::byte* data;
  size_t bytes;

  Span part(size_t at, size_t length) const { return {data + at, length}; }
  bool isFollowedBy(const Span& other) const { return data + bytes == other.data; }
};
using Spans = SegmentList<Span>;

struct ConstSpan {
  const std::byte* data;
  size_t bytes;

  bool operator==(const ConstSpan& other) const = default;
  ConstSpan part(size_t at, size_t length) const { return {data + at, length}; }
  bool isFollowedBy(const ConstSpan& other) const { return data + bytes == other.data; }
};
using ConstSpans = SegmentList<ConstSpan>;

}  // namespace bluefog
