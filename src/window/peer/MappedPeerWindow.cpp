#include "window/peer/MappedPeerWindow.hpp"

#include <utility>

namespace bluefog {

MappedPeerWindow::MappedPeerWindow(std::shared_ptr<Window> own, int owner, const WindowPlace& place,
                                   WindowMemory& memory, const PeerLiveness& liveness)
    : own_(std::move(own)),
      owner_(owner),
      part_(memory.room(owner) + place.room, own_->layout()),
      slot_(part_.slot(own_->rank())),
      tensor_(place.tensor ? memory.heap(owner) + *place.tensor : nullptr),
      mutex_(part_.mutex(own_->rank()), own_->rank(), liveness) {}

MappedPeerWindow::MappedPeerWindow(std::shared_ptr<Window> own, int owner, const WindowPart& part,
                                   OnDevice on_device, const PeerLiveness& liveness)
    : own_(std::move(own)),
      owner_(owner),
      part_(part),
      slot_(on_device.slot),
      tensor_(on_device.tensor),
      messages_(std::move(on_device.messages)),
      mutex_(part_.mutex(own_->rank()), own_->rank(), liveness) {}

PendingOp MappedPeerWindow::put(const SlotUpdate& what, Into into, const Issue& issue) {
  if (!slot_) {
    return messages_->put(what, into, issue);
  }
  const std::lock_guard lock(writing_);
  into == Into::kAdd ? slot_->accumulate(what) : slot_->put(what);
  return nullptr;
}

PendingOp MappedPeerWindow::get(double weight, bool with_p, Engine::Who who) {
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
