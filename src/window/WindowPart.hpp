#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/Dtype.hpp"
#include "core/Pages.hpp"
#include "window/EdgeMutex.hpp"
#include "window/Slot.hpp"

namespace bluefog {

// A WindowShape is the type and number of elements of a window's tensor.
struct WindowShape {
  Dtype dtype;
  size_t count;

  size_t bytes() const { return count * width(dtype); }
};

// A WindowPlace says where a rank's part of a window lies: at which offset its window block begins
// in the rank's window area, and the tensor in the rank's heap, if others read it there.
struct WindowPlace {
  uint64_t room;
  std::optional<uint64_t> tensor;
};

// A WindowLayout says how a rank's part of a window is laid out in its window block:
//
//    p of its tensor and the window's number | EdgeMutex x n | Slot x n, by their writers
class WindowLayout {
 public:
  WindowLayout(int size, size_t bytes) : size_(static_cast<size_t>(size)), bytes_(bytes) {}

  size_t bytes() const { return slotAt(static_cast<int>(size_)); }
  size_t bytesOfTensor() const { return bytes_; }
  size_t mutexAt(int writer) const {
    return kPage + sizeof(EdgeMutex) * static_cast<size_t>(writer);
  }
  size_t slotAt(int writer) const {
    return kPage + roundUp(sizeof(EdgeMutex) * size_) +
           Slot::bytesFor(bytes_) * static_cast<size_t>(writer);
  }

 private:
  size_t size_;
  size_t bytes_;
};

// A WindowPart gives access to the memory of one rank's part of a window, as a rank of the same
// host sees it. It does not own that memory.
// Thread safety: any thread may call any method. The objects that they return have their own rules.
class WindowPart {
 public:
  WindowPart(std::byte* memory, const WindowLayout& layout) : memory_(memory), layout_(layout) {}

  std::atomic<double>& p() const { return header().p; }
  // Returns the number of the window. It is 0, or another window's, when this one was freed.
  std::atomic<uint64_t>& number() const { return header().number; }
  Slot slot(int writer) const {
    return {memory_ + layout_.slotAt(writer), layout_.bytesOfTensor()};
  }
  // Returns the slot of that writer, whose buffers lie in another space.
  Slot slot(int writer, std::byte* buffers, Space& space) const {
    return {memory_ + layout_.slotAt(writer), buffers, layout_.bytesOfTensor(), space};
  }
  EdgeMutex& mutex(int writer) const {
    return *reinterpret_cast<EdgeMutex*>(memory_ + layout_.mutexAt(writer));
  }

 private:
  struct PartHeader {
    std::atomic<double> p;
    std::atomic<uint64_t> number;
  };

  PartHeader& header() const { return *reinterpret_cast<PartHeader*>(memory_); }

  std::byte* memory_;
  WindowLayout layout_;
};

}  // namespace bluefog
