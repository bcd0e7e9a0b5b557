#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace bluefog {

// A Heap is memory of this rank in which other ranks can reach what is stored there.
// Thread safety: any thread.
class Heap {
 public:
  virtual ~Heap() = default;

  // Returns an uninitialized block of `bytes`, or null where there is no space. The caller must
  // return it by giveBack().
  virtual std::byte* take(size_t bytes) = 0;
  virtual void giveBack(std::byte* block, size_t bytes) = 0;
  // Returns the position of the data in this heap, in the form in which other ranks are told of it.
  // Returns nothing where the data does not lie in this heap.
  virtual std::optional<uint64_t> placeOf(const std::byte* data, size_t bytes) const = 0;
  // Copies `bytes` from `from` to `to`. Both must be memory of the kind that this heap consists of
  // (of the host, or of a device).
  virtual void copy(std::byte* to, const std::byte* from, size_t bytes) = 0;

  // Notes that the heap's group has ended. Its owner then takes no more memory here.
  void noteEnd() { has_ended_ = true; }
  bool hasEnded() const { return has_ended_; }

 private:
  std::atomic<bool> has_ended_{false};
};

}  // namespace bluefog
