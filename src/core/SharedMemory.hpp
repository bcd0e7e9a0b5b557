#pragma once

#include <cstddef>
#include <string>

#include "core/Fd.hpp"

namespace bluefog {

// A SharedMemory is memory that processes can share by its descriptor. It has no name, so it is
// freed when the last process closes it.
struct SharedMemory {
  Fd fd;
  // The note is empty for a memfd. Otherwise it says why the memory is a file, and in which folder
  // that lies.
  std::string note;

  // Creates memory of `whole` bytes. Where the system refuses memfds, it creates a file with disk
  // space for the first `dense` bytes only. A process that writes where a full file system has no
  // space is killed, so the caller must allocate the rest before it is used. Throws
  // std::runtime_error where no folder has space.
  static SharedMemory create(size_t whole, size_t dense);
};

}  // namespace bluefog
