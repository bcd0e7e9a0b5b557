// How a window reaches the other ranks' parts of it.
#include <algorithm>

#include "process_group/window/WindowBluefog.hpp"
#include "window/peer/FarReach.hpp"
#include "window/peer/NearReach.hpp"

namespace bluefog {
namespace {

bool has(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

std::optional<DeviceGrounds::Ticket> WindowBluefog::ticket() {
  if (!on_device_) {
    return std::nullopt;
  }
  is_open_elsewhere_ = on_device_->ticket().is_shared;
  return on_device_->ticket();
}

WindowBluefog::Reached WindowBluefog::reachOut(const std::vector<DeviceGrounds::Ticket>& tickets,
                                               const std::vector<std::vector<int>>& sources) {
  all_sources_ = sources;
  const int self = label_.members.rank;
  Reached reached;
  for (const int rank : means_.engine->hosts().here()) {
    const auto at = static_cast<size_t>(rank);
    if (on_device_ && has(sources[at], self) && on_device_->openSlots(rank, tickets[at])) {
      reached.slots.push_back(rank);
    }
    if (on_device_ && has(sources_, rank) && on_device_->openTensor(rank, tickets[at])) {
      reached.tensors.push_back(rank);
    }
  }
  reached.reason = on_device_ ? on_device_->reason() : "";
  return reached;
}

void WindowBluefog::open(uint64_t number, const std::vector<WindowPlace>& places, bool zero_init,
                         Direct direct) {
  if (room_ == nullptr) {
    return;
  }
  const c10::OptionalDeviceGuard guard = onDevice();
  const Membership& members = label_.members;
  const WindowShape shape{dtypeOf(tensor_), static_cast<size_t>(tensor_.numel())};
  auto* data = static_cast<std::byte*>(tensor_.mutable_data_ptr());
  window_ = std::make_shared<Window>(members.rank, members.size, number, shape, data,
                                     std::move(room_), spaceFor(direct.writers));
  direct_ = std::move(direct);
  if (on_device_) {
    on_device_->closeOthersThan(direct_.writers, direct_.owners);
  }
  for (int rank = 0; rank < members.size; ++rank) {
    own_mutexes_.push_back(
        std::make_unique<NearMutex>(window_->mutexWith(rank), members.rank, *means_.lives));
    reaches_.push_back(rank == members.rank ? nullptr
                                            : reachOf(rank, places[static_cast<size_t>(rank)]));
  }
  if (!zero_init) {
    for (const int source : sources_) {
      window_->begin(source);
    }
  }
  if (means_.reception) {
    means_.reception->add(number, *window_);
  }
}

void WindowBluefog::noteOpened() {
  is_open_elsewhere_ = !(direct_.writers.empty() && direct_.owners.empty());
  if (on_device_ && direct_.writers.empty()) {
    on_device_->giveSlotsBack();
  }
}

WindowSpace WindowBluefog::spaceFor(const std::vector<int>& writers) const {
  if (writers.empty()) {
    return {space_, {}};
  }
  WindowSpace where{space_, std::vector<std::byte*>(static_cast<size_t>(label_.members.size))};
  for (const int writer : writers) {
    where.buffers[static_cast<size_t>(writer)] = on_device_->buffers(writer);
  }
  return where;
}

std::unique_ptr<Reach> WindowBluefog::messagesTo(int rank) {
  const Cause freed = drops_ ? Cause::kPeerFailed : Cause::kMismatch;  // since another has died
  const auto asking =
      std::make_shared<Asking>(means_.engine, rank, window_->number(), label_.name, means_.timeout,
                               freed, [ledger = ledger_, rank] { ledger->noteDropped(rank); });
  return std::make_unique<FarReach>(window_, rank, asking);
}

std::unique_ptr<Reach> WindowBluefog::reachOf(int rank, const WindowPlace& place) {
  if (!means_.engine->hosts().isHere(rank)) {
    return messagesTo(rank);
  }
  means_.lives->watch(rank, means_.grounds->hasLeft(rank));
  if (!means_.device) {
    return std::make_unique<NearReach>(window_, rank, place, *means_.grounds, *means_.lives);
  }
  const WindowPart part(means_.grounds->room(rank) + place.room, window_->layout());
  auto reach = std::make_unique<NearReach>(
      window_, rank, part,
      NearReach::OnDevice{slotAt(rank, part), tensorAt(rank), messagesTo(rank)}, *means_.lives);
  opened_.emplace(rank, std::pair(reach.get(), part));
  return reach;
}

// This rank's there, if it lies on the device.
std::optional<Slot> WindowBluefog::slotAt(int rank, const WindowPart& part) const {
  if (!has(direct_.owners, rank)) {
    return std::nullopt;
  }
  const int self = label_.members.rank;
  const std::vector<int> writers = here(all_sources_[static_cast<size_t>(rank)]);
  const auto at = std::find(writers.begin(), writers.end(), self) - writers.begin();
  return part.slot(self, on_device_->buffersAt(rank, static_cast<size_t>(at)), *space_);
}

const std::byte* WindowBluefog::tensorAt(int rank) const {
  return has(direct_.writers, rank) ? on_device_->tensorAt(rank) : nullptr;
}

}  // namespace bluefog
