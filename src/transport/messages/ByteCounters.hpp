#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace bluefog {

// ByteCounters count the bytes that a group's messages have moved on this rank.
//
// Thread safety: only the thread that drives the engine may add; any thread may read.
class ByteCounters {
 public:
  // Adds bytes that were handed to a peer.
  void addSent(size_t bytes) { sent_.fetch_add(bytes, std::memory_order_relaxed); }
  // Adds bytes from peers that were read, and bytes of results or copies that were written.
  void addTouched(size_t read, size_t written) {
    read_.fetch_add(read, std::memory_order_relaxed);
    written_.fetch_add(written, std::memory_order_relaxed);
  }
  uint64_t sent() const { return sent_.load(std::memory_order_relaxed); }
  uint64_t read() const { return read_.load(std::memory_order_relaxed); }
  uint64_t written() const { return written_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> sent_{0};
  std::atomic<uint64_t> read_{0};
  std::atomic<uint64_t> written_{0};
};

}  // namespace bluefog
