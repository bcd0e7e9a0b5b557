// This file holds how a TensorWindow reaches the other ranks' parts of the window.
#include <algorithm>

#include "process_group/window/TensorWindow.hpp"
#include "window/peer/MappedPeerWindow.hpp"
#include "window/peer/MessagePeerWindow.hpp"

namespace bluefog {
namespace {

bool has(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

std::optional<DeviceWindowMemory::Ticket> TensorWindow::ticket() {
  if (!on_device_) {
    return std::nullopt;
  }
  is_open_elsewhere_ = on_device_->ticket().is_shared;
  return on_device_->ticket();
}

TensorWindow::OpenedPeers TensorWindow::openPeers(
    const std::vector<DeviceWindowMemory::Ticket>& tickets,
    const std::vector<std::vector<int>>& sources) {
  all_sources_ = sources;
  const int self = label_.members.rank;
  OpenedPeers opened;
  for (const int rank : resources_.engine->hosts().here()) {
    const auto at = static_cast<size_t>(rank);
    if (on_device_ && has(sources[at], self) && on_device_->openSlots(rank, tickets[at])) {
      opened.slots.push_back(rank);
    }
    if (on_device_ && has(sources_, rank) && on_device_->openTensor(rank, tickets[at])) {
      opened.tensors.push_back(rank);
    }
  }
  opened.reason = on_device_ ? on_device_->reason() : "";
  return opened;
}

void TensorWindow::open(uint64_t number, const std::vector<WindowPlace>& places, bool zero_init,
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
    own_mutexes_.push_back(std::make_unique<MappedMutex>(window_->mutexWith(rank), members.rank,
                                                         *resources_.liveness));
    peer_windows_.push_back(
        rank == members.rank ? nullptr : makePeerWindow(rank, places[static_cast<size_t>(rank)]));
  }
  if (!zero_init) {
    for (const int source : sources_) {
      window_->begin(source);
    }
  }
  if (resources_.server) {
    resources_.server->add(number, *window_);
  }
}

void TensorWindow::noteOpened() {
  is_open_elsewhere_ = !(direct_.writers.empty() && direct_.owners.empty());
  if (on_device_ && direct_.writers.empty()) {
    on_device_->giveSlotsBack();
  }
}

WindowSpace TensorWindow::spaceFor(const std::vector<int>& writers) const {
  if (writers.empty()) {
    return {space_, {}};
  }
  WindowSpace where{space_, std::vector<std::byte*>(static_cast<size_t>(label_.members.size))};
  for (const int writer : writers) {
    where.buffers[static_cast<size_t>(writer)] = on_device_->buffers(writer);
  }
  return where;
}

std::unique_ptr<PeerWindow> TensorWindow::messagesTo(int rank) {
  const Cause freed = drops_ ? Cause::kPeerFailed : Cause::kMismatch;  // as another has died
  const auto client = std::make_shared<WindowClient>(
      resources_.engine, rank, window_->number(), label_.name, resources_.timeout, freed,
      [counters = counters_, rank] { counters->noteDropped(rank); });
  return std::make_unique<MessagePeerWindow>(window_, rank, client);
}

std::unique_ptr<PeerWindow> TensorWindow::makePeerWindow(int rank, const WindowPlace& place) {
  if (!resources_.engine->hosts().isHere(rank)) {
    return messagesTo(rank);
  }
  resources_.liveness->watch(rank, resources_.memory->hasLeft(rank));
  if (!resources_.device) {
    return std::make_unique<MappedPeerWindow>(window_, rank, place, *resources_.memory,
                                              *resources_.liveness);
  }
  const WindowPart part(resources_.memory->room(rank) + place.room, window_->layout());
  auto window = std::make_unique<MappedPeerWindow>(
      window_, rank, part,
      MappedPeerWindow::OnDevice{slotAt(rank, part), tensorAt(rank), messagesTo(rank)},
      *resources_.liveness);
  opened_.emplace(rank, std::pair(window.get(), part));
  return window;
}

// Returns this rank's slot at that rank, if the slot lies on the device.
std::optional<Slot> TensorWindow::slotAt(int rank, const WindowPart& part) const {
  if (!has(direct_.owners, rank)) {
    return std::nullopt;
  }
  const int self = label_.members.rank;
  const std::vector<int> writers = here(all_sources_[static_cast<size_t>(rank)]);
  const auto at = std::find(writers.begin(), writers.end(), self) - writers.begin();
  return part.slot(self, on_device_->buffersAt(rank, static_cast<size_t>(at)), *space_);
}

const std::byte* TensorWindow::tensorAt(int rank) const {
  return has(direct_.writers, rank) ? on_device_->tensorAt(rank) : nullptr;
}

}  // namespace bluefog
