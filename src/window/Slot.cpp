#include "window/Slot.hpp"

#include "core/Pages.hpp"

namespace bluefog {
static_assert(sizeof(Slot::SlotHeader) <= kPage);

size_t Slot::bytesFor(size_t bytes) {
  return kPage + bytesOfBuffers(bytes);
}

size_t Slot::bytesOfBuffers(size_t bytes) {
  return SlotState::kBuffers * roundUp(bytes);
}

Slot::Slot(std::byte* memory, size_t bytes)
    : Slot(memory, memory + kPage, bytes, *HostSpace::get()) {}

Slot::Slot(std::byte* header, std::byte* buffers, size_t bytes, Space& space)
    : header_(header), buffers_(buffers), stride_(roundUp(bytes)), space_(&space) {}

// Changes the state from `expected` to `next`. If somebody else has changed it meanwhile, returns
// false and sets `expected` to what it is now.
bool Slot::become(SlotState& expected, const SlotState& next) {
  uint64_t word = expected.encode();
  if (header().state.compare_exchange_strong(word, next.encode(), std::memory_order_acq_rel,
                                             std::memory_order_acquire)) {
    return true;
  }
  expected = SlotState::decode(word);
  return false;
}

void Slot::noteChange() const {
  header().changed.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  header().total.fetch_add(1, std::memory_order_relaxed);
  // This orders the change before the look whether the owner sleeps.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  header().changes.notify();
}

void Slot::awaitChange(Clock::time_point until) const {
  while (version() == 0) {
    const uint32_t ticket = header().changes.prepareWait();
    const Clock::time_point now = Clock::now();
    if (version() != 0 || now >= until) {
      return;
    }
    header().changes.wait(ticket, until - now);
  }
}

void Slot::put(const SlotUpdate& what) {
  const SlotState now = state();
  replace(what, now, now.writable(), 0);
  noteChange();
}

void Slot::fill(const SlotUpdate& what) {
  begin(what);
  noteChange();
}

void Slot::begin(const SlotUpdate& what) {
  const SlotState now = state();
  replace(what, now, now.fillable(), 1);
}

// Writes into the buffer `written` and makes it the one that counts. `filled` is 1 if that is one
// of the owner's buffers, otherwise 0.
void Slot::replace(const SlotUpdate& what, SlotState now, unsigned written, uint32_t filled) {
  space_->combine(what.dtype, buffer(written), {what.data}, {what.weight}, what.count);
  SlotState next;
  do {
    header().p[written].store(what.p.value_or(pOf(now)), std::memory_order_relaxed);
    next = now;
    next.current = written;
    next.is_empty = false;
    next.filled += filled;
    ++next.version;
  } while (!become(now, next));
}

void Slot::accumulate(const SlotUpdate& what) {
  SlotState now = state();
  while (true) {
    const SlotState base = now;
    const unsigned written = base.writable();
    if (base.is_empty) {
      space_->combine(what.dtype, buffer(written), {what.data}, {what.weight}, what.count);
    } else {
      space_->combine(what.dtype, buffer(written), {buffer(base.current), what.data},
                      {1, what.weight}, what.count);
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

double Slot::p() const {
  return pOf(state());
}

Slot::Clock::time_point Slot::lastChange() const {
  return Clock::time_point(Clock::duration(header().changed.load(std::memory_order_relaxed)));
}

}  // namespace bluefog
