#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "algorithms/Algorithms.hpp"
#include "window/Slot.hpp"
#include "window/WindowPart.hpp"
#include "window/memory/WindowMemory.hpp"

namespace bluefog {

// Where a rank's tensor lies, and the buffers of those of its slots that lie there, too.
struct WindowSpace {
  std::shared_ptr<Space> space = HostSpace::get();
  std::vector<std::byte*> buffers = {};  // by writer; null, or none at all: in its room
};

// This rank's part of a window: a tensor that the others read, and a slot for each of them to write
// to. Any thread may use it. PeerWindow is the others' parts.
class Window {
 public:
  // For so many ranks, which give it the same number. In that room, zeroed.
  Window(int rank, int size, uint64_t number, WindowShape shape, std::byte* tensor,
         std::unique_ptr<WindowBlock> room, WindowSpace where = {});
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  // To others it is as if it had been freed.
  void abandon() { part_.number() = 0; }

  int rank() const { return rank_; }
  uint64_t number() const { return number_; }
  const WindowShape& shape() const { return shape_; }
  const WindowLayout& layout() const { return layout_; }
  const std::byte* tensor() const { return tensor_; }
  // As it is now.
  void copyTensor(std::byte* to) const { where_.space->toHost(to, tensor_, shape_.bytes()); }

  struct Update {
    double self_weight;
    std::vector<WeightedRank> sources;  // ascending
    bool reset = false;                 // the slots of those
    bool with_p = false;
  };
  // self_weight times the tensor and the slots of the sources, times their weights: into `out`,
  // which may be the tensor. The sources' slots are as if nothing had come since.
  void update(const Update& how, void* out);
  // A copy of a slot.
  void read(int writer, void* out);
  // As a put by that writer. Of what lies where that slot's buffers do.
  void fill(int writer, const SlotUpdate& what);
  // With this rank's own values, as if its owner had seen them. Before anybody reaches it.
  void begin(int writer);
  double p() const { return part_.p().load(std::memory_order_relaxed); }
  void setP(double p) { part_.p().store(p, std::memory_order_relaxed); }
  void multiplyP(double factor);
  Slot slotOf(int writer) const;
  EdgeMutex& mutexWith(int writer) const { return part_.mutex(writer); }

 private:
  bool liesElsewhere(const Slot& slot) const;
  void prepareToBring(int writer);
  const void* brought(const Slot& slot, int writer, const std::byte* data);

  const int rank_;
  const uint64_t number_;
  const WindowShape shape_;
  const WindowLayout layout_;
  std::byte* const tensor_;
  const std::unique_ptr<WindowBlock> room_;
  const WindowPart part_;
  const WindowSpace where_;
  std::mutex owning_;
  std::map<int, std::shared_ptr<std::byte>> brought_;  // by writer
};

}  // namespace bluefog
