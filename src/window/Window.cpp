#include "window/Window.hpp"

#include <utility>

#include "window/Combine.hpp"

namespace bluefog {

Window::Window(std::shared_ptr<Grounds> grounds, int rank, WindowShape shape, std::byte* tensor,
               std::vector<WindowPlace> places)
    : grounds_(std::move(grounds)),
      rank_(rank),
      shape_(shape),
      layout_(static_cast<int>(places.size()), shape.bytes()),
      tensor_(tensor),
      places_(std::move(places)),
      own_(at(rank)) {}

std::byte* Window::at(int owner) {
  return grounds_->room(owner) + places_[static_cast<size_t>(owner)].room;
}

Slot Window::slot(int owner, int writer) {
  return {at(owner) + layout_.slotAt(writer), shape_.bytes()};
}

EdgeMutex& Window::mutex(int owner, int writer) {
  return *reinterpret_cast<EdgeMutex*>(at(owner) + layout_.mutexAt(writer));
}

void Window::put(int owner, const void* data, double weight, Into how, bool with_p) {
  const Contribution what{shape_.dtype, shape_.count, data, weight,
                          with_p ? std::optional(weight * p()) : std::nullopt};
  const std::lock_guard lock(writing_);
  Slot target = slot(owner, rank_);
  how == Into::kAdd ? target.accumulate(what) : target.put(what);
}

void Window::get(int source, double weight) {
  const std::byte* tensor = grounds_->heap(source) + places_[static_cast<size_t>(source)].tensor;
  const auto& p = *reinterpret_cast<const std::atomic<double>*>(at(source));
  const std::lock_guard lock(owning_);
  slot(rank_, source)
      .fill(
          {shape_.dtype, shape_.count, tensor, weight, weight * p.load(std::memory_order_relaxed)});
}

void Window::read(int writer, void* out) {
  const std::lock_guard lock(owning_);
  const Slot::Held held = slot(rank_, writer).hold(Slot::Then::kStays);
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
        slot(rank_, source.rank).hold(how.reset ? Slot::Then::kIsEmpty : Slot::Then::kIsSeen);
    add(held.data, source.weight, held.p);
  }
  add_own();
  combine(shape_.dtype, out, inputs, weights, shape_.count);
  if (how.with_p) {
    setP(p);
  }
}

}  // namespace bluefog
