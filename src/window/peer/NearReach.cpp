#include "window/peer/NearReach.hpp"

#include <utility>

namespace bluefog {

NearReach::NearReach(std::shared_ptr<Window> own, int owner, const WindowPlace& place,
                     Grounds& grounds, const Lives& lives)
    : own_(std::move(own)),
      owner_(owner),
      part_(grounds.room(owner) + place.room, own_->layout()),
      slot_(part_.slot(own_->rank())),
      tensor_(place.tensor ? grounds.heap(owner) + *place.tensor : nullptr),
      mutex_(part_.mutex(own_->rank()), own_->rank(), lives) {}

NearReach::NearReach(std::shared_ptr<Window> own, int owner, const WindowPart& part,
                     OnDevice on_device, const Lives& lives)
    : own_(std::move(own)),
      owner_(owner),
      part_(part),
      slot_(on_device.slot),
      tensor_(on_device.tensor),
      messages_(std::move(on_device.messages)),
      mutex_(part_.mutex(own_->rank()), own_->rank(), lives) {}

Rest NearReach::put(const Contribution& what, Into into, const Manner& manner) {
  if (!slot_) {
    return messages_->put(what, into, manner);
  }
  const std::lock_guard lock(writing_);
  into == Into::kAdd ? slot_->accumulate(what) : slot_->put(what);
  return nullptr;
}

Rest NearReach::get(double weight, bool with_p, Engine::Who who) {
  if (messages_ != nullptr && tensor_ == nullptr) {
    return messages_->get(weight, with_p, who);
  }
  const WindowShape& shape = own_->shape();
  const double p = weight * part_.p().load(std::memory_order_relaxed);
  own_->fill(owner_,
             {shape.dtype, shape.count, tensor_, weight, with_p ? std::optional(p) : std::nullopt});
  return nullptr;
}

}  // namespace bluefog
