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

// A WindowSpace says in which Space a rank's tensor lies, and where the buffers of those of its
// slots are that lie there, too.
struct WindowSpace {
  std::shared_ptr<Space> space = HostSpace::get();
  std::vector<std::byte*> buffers = {};  // by writer; null, or empty for all: in the window block
};

// A Window is this rank's part of a window: a tensor that the others read, and a slot for each of
// them to write to. PeerWindow stands for the other ranks' parts. A Window owns its window block,
// and refers to the tensor, which must outlive it.
// Thread safety: any thread may call any method.
class Window {
 public:
  // `number` tells the window from others, and is the same on all ranks. `room` is the zeroed
  // window block for the header and slots.
  Window(int rank, int size, uint64_t number, WindowShape shape, std::byte* tensor,
         std::unique_ptr<WindowBlock> room, WindowSpace where = {});
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  // Makes the window look freed to the other ranks. Its memory stays.
  void abandon() { part_.number() = 0; }

  int rank() const { return rank_; }
  uint64_t number() const { return number_; }
  const WindowShape& shape() const { return shape_; }
  const WindowLayout& layout() const { return layout_; }
  const std::byte* tensor() const { return tensor_; }
  // Copies the tensor as it is now to the host's memory.
  void copyTensor(std::byte* to) const { where_.space->toHost(to, tensor_, shape_.bytes()); }

  struct Update {
    double self_weight;
    std::vector<WeightedRank> sources;  // in ascending order
    bool reset = false;                 // whether the slots of the sources are emptied
    bool with_p = false;
  };
  // Writes self_weight times the tensor plus each source's slot times its weight to `out`, which
  // may be the tensor. Afterwards the sources' slots count as seen.
  void update(const Update& how, void* out);
  // Copies a slot's content to `out`.
  void read(int writer, void* out);
  // Replaces a slot's content as a put by that writer would. The data must lie in the Space of the
  // slot's buffers.
  void fill(int writer, const SlotUpdate& what);
  // Sets a slot's first content to this rank's own values, which count as seen. It must be called
  // before other ranks reach the window.
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
  std::map<int, std::shared_ptr<std::byte>> brought_;  // copies, by writer: see brought()
};

}  // namespace bluefog
