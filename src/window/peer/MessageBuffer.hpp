#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>

#include "core/Spans.hpp"

namespace bluefog {

// A MessageBuffer owns the bytes of a message that has come, or is to be sent: a header and a body.
// A message that has come may have any length.
// Thread safety: one thread at a time.
class MessageBuffer {
 public:
  // Returns memory for a message of that length. Memory that is large enough is used again.
  std::byte* make(size_t bytes) {
    if (bytes > room_) {
      memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      room_ = bytes;
    }
    bytes_ = bytes;
    return memory_.get();
  }
  ConstSpan whole() const { return {memory_.get(), bytes_}; }
  // Returns a copy of the header, or nothing if the message is shorter than that.
  template <class Header>
  std::optional<Header> header() const {
    Header header;
    if (bytes_ < sizeof header) {
      return std::nullopt;
    }
    std::memcpy(&header, memory_.get(), sizeof header);
    return header;
  }
  // The next two are only for messages that are known to have such a header.
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
