#include "window/Window.hpp"

#include <utility>

namespace bluefog {

Window::Window(int rank, int size, uint64_t number, WindowShape shape, std::byte* tensor,
               std::unique_ptr<WindowBlock> room, WindowSpace where)
    : rank_(rank),
      number_(number),
      shape_(shape),
      layout_(size, shape.bytes()),
      tensor_(tensor),
      room_(std::move(room)),
      part_(room_->data(), layout_),
      where_(std::move(where)) {
  setP(1);
  part_.number() = number;
}

Slot Window::slotOf(int writer) const {
  std::byte* buffers =
      where_.buffers.empty() ? nullptr : where_.buffers[static_cast<size_t>(writer)];
  return buffers == nullptr ? part_.slot(writer) : part_.slot(writer, buffers, *where_.space);
}

bool Window::liesElsewhere(const Slot& slot) const {
  return &slot.space() != where_.space.get() && shape_.bytes() > 0;
}

// Makes the memory for brought() before anything is taken out of the slot, because there may be
// none.
void Window::prepareToBring(int writer) {
  if (liesElsewhere(slotOf(writer)) && brought_[writer] == nullptr) {
    brought_[writer] = where_.space->make(shape_.bytes());
  }
}

// Returns a slot's content where the tensor lies: the content itself, or else a copy, which stays
// until the next call for that writer.
const void* Window::brought(const Slot& slot, int writer, const std::byte* data) {
  if (data == nullptr || !liesElsewhere(slot)) {
    return data;
  }
  std::byte* copy = brought_.at(writer).get();
  where_.space->fromHost(copy, data, shape_.bytes());
  return copy;
}

void Window::fill(int writer, const SlotUpdate& what) {
  const std::lock_guard lock(owning_);
  slotOf(writer).fill(what);
}

void Window::begin(int writer) {
  Slot slot = slotOf(writer);
  std::shared_ptr<std::byte> copy;
  if (liesElsewhere(slot)) {
    copy = slot.space().make(shape_.bytes());
    copyTensor(copy.get());
  }
  slot.begin({shape_.dtype, shape_.count, copy ? copy.get() : tensor_, 1, 0});
  slot.hold(Slot::Then::kIsSeen);
}

void Window::multiplyP(double factor) {
  const std::lock_guard lock(owning_);
  setP(p() * factor);
}

void Window::read(int writer, void* out) {
  const std::lock_guard lock(owning_);
  prepareToBring(writer);
  Slot slot = slotOf(writer);
  const Slot::Held held = slot.hold(Slot::Then::kStays);
  const std::vector<const void*> inputs(held.data == nullptr ? 0 : 1,
                                        brought(slot, writer, held.data));
  where_.space->combine(shape_.dtype, out, inputs, std::vector<double>(inputs.size(), 1),
                        shape_.count);
}

void Window::update(const Update& how, void* out) {
  const std::lock_guard lock(owning_);
  for (const WeightedRank& source : how.sources) {
    prepareToBring(source.rank);
  }
  std::vector<const void*> inputs;
  std::vector<double> weights;
  double p = 0;
  const auto add = [&](const void* data, double weight, double its_p) {
    // Data without a weight is left out, because it could be 0 * infinity.
    if (data != nullptr && weight != 0) {
      inputs.push_back(data);
      weights.push_back(weight);
      p += weight * its_p;
    }
  };
  // The terms are added in the order of the ranks, so that equal slots give equal bits everywhere.
  bool own_is_in = false;
  const auto add_own = [&] {
    if (!std::exchange(own_is_in, true)) {
      add(tensor_, how.self_weight, this->p());
    }
  };
  for (const WeightedRank& source : how.sources) {
    if (source.rank > rank_) {
      add_own();
    }
    Slot slot = slotOf(source.rank);
    const Slot::Held held = slot.hold(how.reset ? Slot::Then::kIsEmpty : Slot::Then::kIsSeen);
    add(brought(slot, source.rank, held.data), source.weight, held.p);
  }
  add_own();
  where_.space->combine(shape_.dtype, out, inputs, weights, shape_.count);
  if (how.with_p) {
    setP(p);
  }
}

}  // namespace bluefog
