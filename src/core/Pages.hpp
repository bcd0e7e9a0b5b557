#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace bluefog {

constexpr size_t kPage = 4096;

constexpr size_t roundUp(size_t bytes, size_t unit = kPage) {
  return (bytes + unit - 1) / unit * unit;
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; others refuse it
#endif

// Has the system find memory for them. False where there is none.
inline bool fillPages(std::byte* data, size_t bytes) {
  const size_t before = reinterpret_cast<uintptr_t>(data) % kPage;
  return ::madvise(data - before, roundUp(bytes + before), MADV_POPULATE_WRITE) == 0;
}

}  // namespace bluefog
