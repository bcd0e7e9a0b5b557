#include "window/Window.hpp"

#include <utility>

#include "window/Combine.hpp"

namespace bluefog {

Window::Window(int rank, int size, uint64_t number, WindowShape shape, std::byte* tensor,
               std::unique_ptr<Room> room)
    : rank_(rank),
      number_(number),
      shape_(shape),
      layout_(size, shape.bytes()),
      tensor_(tensor),
      room_(std::move(room)),
      part_(room_->data(), layout_) {
  setP(1);
  part_.number() = number;
}

void Window::fill(int writer, const Contribution& what) {
  const std::lock_guard lock(owning_);
  slotOf(writer).fill(what);
}

void Window::begin(int writer) {
  Slot slot = slotOf(writer);
  slot.begin({shape_.dtype, shape_.count, tensor_, 1, 0});
  slot.hold(Slot::Then::kIsSeen);
}

void Window::multiplyP(double factor) {
  const std::lock_guard lock(owning_);
  setP(p() * factor);
}

void Window::read(int writer, void* out) {
  const std::lock_guard lock(owning_);
  const Slot::Held held = slotOf(writer).hold(Slot::Then::kStays);
  const std::vector<const void*> inputs(held.data == nullptr ? 0 : 1, held.data);
  combine(shape_.dtype, out, inputs, std::vector<double>(inputs.size(), 1), shape_.count);
}

void Window::update(const Update& how, void* out) {
  const std::lock_guard lock(owning_);
  std::vector<const void*> inputs;
  std::vector<double> weights;
  double p = 0;
  const auto add = [&](const void* data, double weight, double its_p) {
    // What weighs nothing must not come in as 0 * infinity.
    if (data != nullptr && weight != 0) {
      inputs.push_back(data);
      weights.push_back(weight);
      p += weight * its_p;
    }
  };
  // In the order of the ranks, so that equal slots give equal bits everywhere.
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
    const Slot::Held held =
        slotOf(source.rank).hold(how.reset ? Slot::Then::kIsEmpty : Slot::Then::kIsSeen);
    add(held.data, source.weight, held.p);
  }
  add_own();
  combine(shape_.dtype, out, inputs, weights, shape_.count);
  if (how.with_p) {
    setP(p);
  }
}

}  // namespace bluefog
