#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "algorithms/Algorithms.hpp"
#include "core/Dtype.hpp"
#include "core/Pages.hpp"
#include "window/EdgeMutex.hpp"
#include "window/Grounds.hpp"
#include "window/Slot.hpp"

namespace bluefog {

struct WindowShape {
  Dtype dtype;
  size_t count;

  size_t bytes() const { return count * width(dtype); }
};

// Where a rank's part of a window lies: its header and slots in its room, its tensor in its heap.
struct WindowPlace {
  uint64_t room;
  uint64_t tensor;
};

// A rank's part of a window, in its room:
//
//   p of its tensor | EdgeMutex x n | Slot x n, by their writers
class WindowLayout {
 public:
  WindowLayout(int size, size_t bytes) : size_(static_cast<size_t>(size)), bytes_(bytes) {}

  size_t bytes() const { return slotAt(static_cast<int>(size_)); }
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

// A tensor of each rank of a host that the others can read, and a slot for each of them to write
// to. What a rank writes into another's memory is there when the call returns, and the other one
// has nothing to do for it. Any thread may use it.
class Window {
 public:
  // `tensor` is this rank's, and at its place in the heap.
  Window(std::shared_ptr<Grounds> grounds, int rank, WindowShape shape, std::byte* tensor,
         std::vector<WindowPlace> places);
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  // --- into another rank's memory. `data` is of the window's shape.
  enum class Into { kReplace, kAdd };
  // `with_p`: so is `weight` times this rank's p.
  void put(int owner, const void* data, double weight, Into how, bool with_p);
  // Another rank's tensor and p, times `weight`, into this rank's own slot for it.
  void get(int source, double weight);

  // --- in its own memory
  struct Update {
    double self_weight;
    std::vector<WeightedRank> sources;  // ascending
    bool reset = false;                 // the slots of those
    bool with_p = false;
  };
  // self_weight times this rank's tensor and the slots of the sources, times their weights: into
  // `out`, which may be the tensor. The sources' slots are as if nothing
  // had come since.
  void update(const Update& how, void* out);
  // A copy of a slot.
  void read(int writer, void* out);
  double p() const { return ownP().load(std::memory_order_relaxed); }
  void setP(double p) { ownP().store(p, std::memory_order_relaxed); }
  Slot slotOf(int writer) { return slot(rank_, writer); }
  EdgeMutex& mutex(int owner, int writer);

 private:
  std::atomic<double>& ownP() const { return *reinterpret_cast<std::atomic<double>*>(own_); }
  std::byte* at(int owner);
  Slot slot(int owner, int writer);

  const std::shared_ptr<Grounds> grounds_;
  const int rank_;
  const WindowShape shape_;
  const WindowLayout layout_;
  std::byte* const tensor_;
  const std::vector<WindowPlace> places_;
  std::byte* const own_;
  std::mutex writing_;  // to others
  std::mutex owning_;
};

}  // namespace bluefog
