#include "window/NearReach.hpp"

#include <utility>

namespace bluefog {

NearReach::NearReach(std::shared_ptr<Window> own, int owner, const WindowPlace& place,
                     Grounds& grounds, const Lives& lives)
    : own_(std::move(own)),
      owner_(owner),
      part_(grounds.room(owner) + place.room, own_->layout()),
      tensor_(place.tensor ? grounds.heap(owner) + *place.tensor : nullptr),
      mutex_(part_.mutex(own_->rank()), own_->rank(), lives) {}

Rest NearReach::put(const Contribution& what, Into into, const Manner& /*manner*/) {
  Slot slot = part_.slot(own_->rank());
  const std::lock_guard lock(writing_);
  into == Into::kAdd ? slot.accumulate(what) : slot.put(what);
  return nullptr;
}

Rest NearReach::get(double weight, bool with_p, Engine::Who /*who*/) {
  const WindowShape& shape = own_->shape();
  const double p = weight * part_.p().load(std::memory_order_relaxed);
  own_->fill(owner_,
             {shape.dtype, shape.count, tensor_, weight, with_p ? std::optional(p) : std::nullopt});
  return nullptr;
}

}  // namespace bluefog
