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

// Elements that go into a slot, times a weight, and lie where its buffers do; with the push-sum
// weight that belongs to them, where it counts. Otherwise the slot's stays.
struct SlotUpdate {
  Dtype dtype;
  size_t count;
  const void* data;
  double weight;
  std::optional<double> p = {};  // multiplied already
};

// The part of a window that one rank, its writer, writes to in the memory of another, its owner: a
// header and five buffers, of which pages nobody has touched take no memory. The header is in the
// host's memory; the buffers follow it, or are elsewhere. Any of the two may be killed at any
// instant: what counts is always whole.
class Slot {
 public:
  using Clock = std::chrono::steady_clock;

  struct SlotHeader {
    std::atomic<uint64_t> state;
    std::atomic<int64_t> changed;  // when, by the clock of this host; 0: never
    std::atomic<uint64_t> total;   // changes since the window was made
    std::atomic<double> p[SlotState::kBuffers];
    EventCount changes;  // its owner may sleep until there is one
  };

  // Of buffers of so many bytes: with its header; without.
  static size_t bytesFor(size_t bytes);
  static size_t bytesOfBuffers(size_t bytes);
  // Zeroed memory is an empty slot.
  Slot(std::byte* memory, size_t bytes);
  // With that header, and buffers in another space, which need not be zeroed.
  Slot(std::byte* header, std::byte* buffers, size_t bytes, Space& space);
  Space& space() const { return *space_; }

  // --- by its writer, one thread at a time
  void put(const SlotUpdate& what);
  void accumulate(const SlotUpdate& what);

  // --- by its owner, one thread at a time
  struct Held {
    const std::byte* data;  // null: zeros
    double p;
    uint32_t version;
  };
  // What counts now; that memory stays as it is until the next hold() or fill(). What is empty then
  // has been taken out: nothing that was accumulated is lost, or seen twice.
  enum class Then : uint8_t { kStays, kIsSeen, kIsEmpty };  // kIsSeen: with version 0
  Held hold(Then then);
  // Sleeps while the version is 0, at most until then.
  void awaitChange(Clock::time_point until) const;
  // As a put by the owner.
  void fill(const SlotUpdate& what);
  // What is there before anybody has changed anything.
  void begin(const SlotUpdate& what);

  // --- by anyone
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
