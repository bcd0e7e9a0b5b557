#pragma once

#include <cstddef>
#include <string>

#include "core/Fd.hpp"

namespace bluefog {

// Memory that processes can share, without a name, so that it ends with the last of them.
struct SharedMemory {
  Fd fd;
  // Empty, or why this is no memfd but a file, and where it lies.
  std::string note;

  // `whole` bytes. Where the system refuses memfds, a file that has room for the first `dense` of
  // them: whoever writes where a file finds no room is killed, so there must be room for the rest
  // before it is used.
  static SharedMemory create(size_t whole, size_t dense);
};

}  // namespace bluefog
