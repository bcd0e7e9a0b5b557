#include "window/memory/DeviceWindowMemory.hpp"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "window/Slot.hpp"
#include "window/memory/DeviceSpace.hpp"

namespace bluefog {
static_assert(std::is_trivially_copyable_v<DeviceWindowMemory::Ticket>);

DeviceWindowMemory::DeviceWindowMemory(std::shared_ptr<DeviceHeap> heap, const std::byte* tensor,
                                       size_t bytes, std::vector<int> writers)
    : heap_(std::move(heap)), bytes_(Slot::bytesOfBuffers(bytes)), writers_(std::move(writers)) {
  const std::optional<bluefog_handle> own = heap_->share(tensor, reason_);
  if (!own) {
    return;
  }
  if (!writers_.empty()) {
    slots_ = DeviceSpace(heap_).make(bytes_ * writers_.size());
    const std::optional<bluefog_handle> slots = heap_->share(slots_.get(), reason_);
    if (!slots) {
      giveSlotsBack();
      return;
    }
    ticket_.slots = *slots;
  }
  ticket_.is_shared = true;
  ticket_.tensor = *own;
  ticket_.tensor_at = heap_->placeOf(tensor, 0).value_or(0);
}

DeviceWindowMemory::~DeviceWindowMemory() {
  closeAll();
}

void DeviceWindowMemory::forsakeSlots() {
  (void)std::make_unique<std::shared_ptr<std::byte>>(std::move(slots_)).release();
}

bool DeviceWindowMemory::open(OpenedOf& all, int rank, const Ticket& ticket,
                              const bluefog_handle& handle, uint64_t at) {
  if (!ticket.is_shared) {
    return false;
  }
  std::string why;
  std::byte* block = heap_->device().open(handle, why);
  if (block == nullptr) {
    reason_ = why;
    return false;
  }
  all[rank] = {handle, at, block};
  return true;
}

bool DeviceWindowMemory::openTensor(int rank, const Ticket& ticket) {
  return open(tensors_, rank, ticket, ticket.tensor, ticket.tensor_at);
}

bool DeviceWindowMemory::openSlots(int rank, const Ticket& ticket) {
  return open(slots_of_, rank, ticket, ticket.slots, 0);
}

void DeviceWindowMemory::closeOthersThan(const std::vector<int>& tensors,
                                         const std::vector<int>& slots) {
  for (const auto& [all, kept] : {std::pair(&tensors_, &tensors), std::pair(&slots_of_, &slots)}) {
    std::erase_if(*all, [&, &ranks = *kept](const auto& entry) {
      const auto& [rank, opened] = entry;
      const bool goes = std::find(ranks.begin(), ranks.end(), rank) == ranks.end();
      if (goes) {
        heap_->device().close(opened.block);
      }
      return goes;
    });
  }
}

void DeviceWindowMemory::closeAll() {
  for (OpenedOf* all : {&tensors_, &slots_of_}) {
    for (auto& [rank, opened] : *all) {
      if (std::byte* block = std::exchange(opened.block, nullptr)) {
        heap_->device().close(block);
      }
    }
  }
}

void DeviceWindowMemory::openAgain() {
  for (OpenedOf* all : {&tensors_, &slots_of_}) {
    for (auto& [rank, opened] : *all) {
      std::string why;
      opened.block = heap_->device().open(opened.handle, why);
      if (opened.block == nullptr) {
        throw std::runtime_error("[bluefog] opening the memory of a window again: " + why);
      }
    }
  }
}

std::byte* DeviceWindowMemory::buffers(int writer) const {
  const auto place = std::find(writers_.begin(), writers_.end(), writer) - writers_.begin();
  return slots_.get() + bytes_ * static_cast<size_t>(place);
}

std::byte* DeviceWindowMemory::buffersAt(int rank, size_t place) const {
  return slots_of_.at(rank).data() + bytes_ * place;
}

const std::byte* DeviceWindowMemory::tensorAt(int rank) const {
  return tensors_.at(rank).data();
}

}  // namespace bluefog
