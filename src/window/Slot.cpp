#include "window/Slot.hpp"

#include "window/Combine.hpp"

namespace bluefog {
namespace {

constexpr size_t kPage = 4096;

size_t strideOf(size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

static_assert(sizeof(Slot::Header) <= kPage);

size_t Slot::bytesFor(size_t bytes) {
  return kPage + SlotState::kBuffers * strideOf(bytes);
}

Slot::Slot(std::byte* memory, size_t bytes) : memory_(memory), stride_(strideOf(bytes)) {}

std::byte* Slot::buffer(unsigned which) const {
  return memory_ + kPage + which * stride_;
}

// Where another has changed it meanwhile, `expected` is what it is now.
bool Slot::become(SlotState& expected, const SlotState& next) {
  uint64_t word = expected.encode();
  if (header().state.compare_exchange_strong(word, next.encode(), std::memory_order_acq_rel,
                                             std::memory_order_acquire)) {
    return true;
  }
  expected = SlotState::decode(word);
  return false;
}

void Slot::noteChange() {
  header().changed.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  header().total.fetch_add(1, std::memory_order_relaxed);
}

void Slot::put(const Contribution& what) {
  SlotState now = state();
  const unsigned written = now.writable();
  combine(what.dtype, buffer(written), {what.data}, {what.weight}, what.count);
  SlotState next;
  do {
    header().p[written].store(what.p.value_or(pOf(now)), std::memory_order_relaxed);
    next = now;
    next.current = written;
    next.is_empty = false;
    ++next.version;
  } while (!become(now, next));
  noteChange();
}

void Slot::accumulate(const Contribution& what) {
  SlotState now = state();
  while (true) {
    const SlotState base = now;
    const unsigned written = base.writable();
    if (base.is_empty) {
      combine(what.dtype, buffer(written), {what.data}, {what.weight}, what.count);
    } else {
      combine(what.dtype, buffer(written), {buffer(base.current), what.data}, {1, what.weight},
              what.count);
    }
    header().p[written].store(pOf(base) + what.p.value_or(0), std::memory_order_relaxed);
    while (now.hasContentOf(base)) {
      SlotState next = now;
      next.current = written;
      next.is_empty = false;
      ++next.version;
      if (become(now, next)) {
        noteChange();
        return;
      }
    }
  }
}

Slot::Held Slot::hold(Then then) {
  SlotState now = state();
  SlotState next;
  do {
    next = now;
    next.held = now.current;
    next.is_empty = now.is_empty || then == Then::kIsEmpty;
    next.version = then == Then::kStays ? now.version : 0;
  } while (!become(now, next));
  return {now.is_empty ? nullptr : buffer(now.current), pOf(now), now.version};
}

void Slot::fill(const Contribution& what) {
  SlotState now = state();
  const unsigned written = now.fillable();
  combine(what.dtype, buffer(written), {what.data}, {what.weight}, what.count);
  SlotState next;
  do {
    header().p[written].store(what.p.value_or(pOf(now)), std::memory_order_relaxed);
    next = now;
    next.current = written;
    next.is_empty = false;
    ++next.filled;
    ++next.version;
  } while (!become(now, next));
  noteChange();
}

double Slot::p() const {
  return pOf(state());
}

Slot::Clock::time_point Slot::lastChange() const {
  return Clock::time_point(Clock::duration(header().changed.load(std::memory_order_relaxed)));
}

}  // namespace bluefog
