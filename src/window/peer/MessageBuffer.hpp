#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>

#include "core/Spans.hpp"

namespace bluefog {

// A message with a header, as it has come: of any length.
class MessageBuffer {
 public:
  // Where to put one of that length. Keeps its memory from one to the next.
  std::byte* make(size_t bytes) {
    if (bytes > room_) {
      memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      room_ = bytes;
    }
    bytes_ = bytes;
    return memory_.get();
  }
  ConstSpan whole() const { return {memory_.get(), bytes_}; }
  // Nothing where it is shorter.
  template <class Header>
  std::optional<Header> header() const {
    Header header;
    if (bytes_ < sizeof header) {
      return std::nullopt;
    }
    std::memcpy(&header, memory_.get(), sizeof header);
    return header;
  }
  template <class Header>
  const std::byte* body() const {
    return memory_.get() + sizeof(Header);
  }
  template <class Header>
  size_t bytesOfBody() const {
    return bytes_ - sizeof(Header);
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
  size_t room_ = 0;
  size_t bytes_ = 0;
};

}  // namespace bluefog
