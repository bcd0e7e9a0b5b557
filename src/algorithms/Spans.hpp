#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace bluefog {

// Memory in one or several places, seen as one after the other. Each holds whole elements.
class Spans {
 public:
  struct Span {
    std::byte* data;
    size_t bytes;
  };

  Spans(std::byte* data, size_t bytes) : Spans({{data, bytes}}) {}
  explicit Spans(std::vector<Span> spans) : spans_(std::move(spans)) {
    size_t end = 0;
    for (const Span& span : spans_) {
      ends_.push_back(end += span.bytes);
    }
  }

  // visit(span, at) for each stretch of [begin, begin + bytes), which is `at` bytes after its
  // begin.
  template <class Visit>
  void forEach(size_t begin, size_t bytes, Visit visit) const {
    auto index =
        static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
    for (size_t at = 0; at < bytes; ++index) {
      const size_t left = ends_[index] - (begin + at);
      const size_t length = std::min(left, bytes - at);
      if (length > 0) {
        const Span& span = spans_[index];
        visit(Span{span.data + span.bytes - left, length}, at);
      }
      at += length;
    }
  }

 private:
  std::vector<Span> spans_;
  std::vector<size_t> ends_;  // of each, in all
};

}  // namespace bluefog
