#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace bluefog {

// Memory of this rank where others can reach what lies in it. Any thread may use it.
class Heap {
 public:
  virtual ~Heap() = default;

  // Uninitialised. Null where there is no room.
  virtual std::byte* take(size_t bytes) = 0;
  virtual void giveBack(std::byte* block, size_t bytes) = 0;
  // Where in it that lies, as others are told; nothing where it lies elsewhere.
  virtual std::optional<uint64_t> placeOf(const std::byte* data, size_t bytes) const = 0;
  // From memory of the same kind.
  virtual void copy(std::byte* to, const std::byte* from, size_t bytes) = 0;
};

}  // namespace bluefog
