#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/DeviceHeap.hpp"

namespace bluefog {

// DeviceWindowMemory holds what lies on a device of one window. It owns the buffers of those of
// this rank's slots that ranks of this host write to. It also owns what this rank has opened of
// these ranks' memory: their tensors, and the buffers of its slots there. Everything else of the
// window goes through the host's memory.
// Thread safety: one thread at a time.
class DeviceWindowMemory {
 public:
  // A Ticket tells other ranks how to open this rank's part. It is sent as bytes, so it must be
  // trivially copyable.
  struct Ticket {
    bool is_shared = false;
    bluefog_handle tensor{};
    uint64_t tensor_at = 0;
    bluefog_handle slots{};  // valid if there are slots on the device
  };

  // Makes and shares the slots of `writers` for a tensor of `bytes`, which lies in that heap. If
  // something cannot be shared, the ticket says so, and reason() why.
  DeviceWindowMemory(std::shared_ptr<DeviceHeap> heap, const std::byte* tensor, size_t bytes,
                     std::vector<int> writers);
  ~DeviceWindowMemory();
  DeviceWindowMemory(const DeviceWindowMemory&) = delete;
  DeviceWindowMemory& operator=(const DeviceWindowMemory&) = delete;

  const Ticket& ticket() const { return ticket_; }
  // These two open another rank's tensor, or its slots. They return false if that cannot be opened.
  bool openTensor(int rank, const Ticket& ticket);
  bool openSlots(int rank, const Ticket& ticket);
  // Returns why something could not be shared or opened, or an empty text if all could.
  const std::string& reason() const { return reason_; }
  // Closes everything but the tensors and the slots of these ranks.
  void closeOthersThan(const std::vector<int>& tensors, const std::vector<int>& slots);
  // closeAll() closes everything that was opened, which must happen before its owners free it.
  // openAgain() opens it again if they do not free it, and throws std::runtime_error if that fails.
  void closeAll();
  void openAgain();

  // These two are about the memory of this rank's slots. giveSlotsBack() frees it, when nobody
  // writes there. forsakeSlots() leaves it until the process ends, because others may have it open
  // for as long.
  void giveSlotsBack() { slots_.reset(); }
  void forsakeSlots();

  // Returns the buffers of this rank's slot for one of its writers.
  std::byte* buffers(int writer) const;
  // These return what was opened of another rank: the buffers of the slot of its `place`-th writer,
  // and its tensor.
  std::byte* buffersAt(int rank, size_t place) const;
  const std::byte* tensorAt(int rank) const;

 private:
  struct Opened {
    bluefog_handle handle;
    uint64_t at;
    std::byte* block;  // null while it is closed

    std::byte* data() const { return block + at; }
  };
  using OpenedOf = std::map<int, Opened>;  // by rank

  bool open(OpenedOf& all, int rank, const Ticket& ticket, const bluefog_handle& handle,
            uint64_t at);

  const std::shared_ptr<DeviceHeap> heap_;
  const size_t bytes_;  // size of a slot's buffers
  const std::vector<int> writers_;
  std::shared_ptr<std::byte> slots_;
  Ticket ticket_;
  OpenedOf tensors_;
  OpenedOf slots_of_;
  std::string reason_;
};

}  // namespace bluefog
