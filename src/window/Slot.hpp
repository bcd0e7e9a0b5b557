#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/Dtype.hpp"
#include "transport/memory/EventCount.hpp"
#include "window/SlotState.hpp"
#include "window/memory/HostSpace.hpp"

namespace bluefog {

// A SlotUpdate describes `count` elements that go into a slot, multiplied by a weight. The data
// must lie in the Space of the slot's buffers.
struct SlotUpdate {
  Dtype dtype;
  size_t count;
  const void* data;
  double weight;
  std::optional<double> p = {};  // push-sum weight, multiplied already; without it the slot's stays
};

// A Slot is the part of a window that one rank, its writer, writes to in the memory of another
// rank, its owner. It consists of a header and five buffers, whose pages take no memory before they
// are touched. The header lies in the host's memory. The buffers follow it or lie in another Space.
// Either rank may be killed at any instant, and still the content that counts is always whole. The
// Slot object owns nothing, and is cheap to copy.
// Thread safety: the writer's calls and the owner's calls each come from one thread at a time; both
// may run at the same time as each other and as those for anyone.
class Slot {
 public:
  using Clock = std::chrono::steady_clock;

  struct SlotHeader {
    std::atomic<uint64_t> state;
    std::atomic<int64_t> changed;  // time by the clock of this host; 0 if there was no change
    std::atomic<uint64_t> total;   // number of changes since the window was made
    std::atomic<double> p[SlotState::kBuffers];
    EventCount changes;  // wakes the owner when there is one
  };

  // Returns the bytes that a slot for tensors of `bytes` takes, with its header.
  static size_t bytesFor(size_t bytes);
  // Returns the bytes of its buffers alone.
  static size_t bytesOfBuffers(size_t bytes);
  // Refers to a slot whose buffers follow its header. Zeroed memory is an empty slot.
  Slot(std::byte* memory, size_t bytes);
  // Refers to a slot with that header and with buffers in another space. The buffers need not be
  // zeroed.
  Slot(std::byte* header, std::byte* buffers, size_t bytes, Space& space);
  Space& space() const { return *space_; }

  // --- These calls are for the writer.
  // Replaces the slot's content.
  void put(const SlotUpdate& what);
  // Adds to the slot's content.
  void accumulate(const SlotUpdate& what);

  // --- These calls are for the owner.
  struct Held {
    const std::byte* data;  // null if the slot is empty, which counts as zeros
    double p;
    uint32_t version;
  };
  // Returns the content that counts now. Its memory stays as it is until the next hold() or fill().
  // `then` says what the slot is afterwards: unchanged, seen (its version is 0), or empty. With
  // kIsEmpty the content has been taken out, so that nothing that was accumulated is lost or seen
  // twice.
  enum class Then : uint8_t { kStays, kIsSeen, kIsEmpty };
  Held hold(Then then);
  // Sleeps while the version is 0, at most until that time.
  void awaitChange(Clock::time_point until) const;
  // Replaces the slot's content as a put does, but from the owner's side.
  void fill(const SlotUpdate& what);
  // Sets the content that is there before anybody has changed anything. It is not counted in
  // changesInAll().
  void begin(const SlotUpdate& what);

  // --- These calls are for anyone.
  // Returns the number of changes since the owner has last seen the content.
  uint32_t version() const { return state().version; }
  double p() const;
  uint64_t changesInAll() const { return header().total.load(std::memory_order_relaxed); }
  Clock::time_point lastChange() const;

 private:
  SlotHeader& header() const { return *reinterpret_cast<SlotHeader*>(header_); }
  std::byte* buffer(unsigned which) const { return buffers_ + which * stride_; }
  SlotState state() const {
    return SlotState::decode(header().state.load(std::memory_order_acquire));
  }
  double pOf(const SlotState& state) const {
    return state.is_empty ? 0 : header().p[state.current].load(std::memory_order_relaxed);
  }
  bool become(SlotState& expected, const SlotState& next);
  void replace(const SlotUpdate& what, SlotState now, unsigned written, uint32_t filled);
  void noteChange() const;

  std::byte* header_;
  std::byte* buffers_;
  size_t stride_;
  Space* space_;
};

}  // namespace bluefog
