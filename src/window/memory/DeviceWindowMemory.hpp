#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/DeviceHeap.hpp"

namespace bluefog {

// What of a window lies on a device: the buffers of slots that ranks of this host write to; and
// what this rank has opened of those, their tensors and such buffers. All else goes through the
// host.
class DeviceWindowMemory {
 public:
  // What others open this rank's part by. Trivially copyable, as it is sent.
  struct Ticket {
    bool is_shared = false;
    bluefog_handle tensor{};
    uint64_t tensor_at = 0;
    bluefog_handle slots{};  // where there are any
  };

  // Of a tensor in that heap, of so many bytes. `writers`: the ranks that shall have slots there.
  DeviceWindowMemory(std::shared_ptr<DeviceHeap> heap, const std::byte* tensor, size_t bytes,
                     std::vector<int> writers);
  ~DeviceWindowMemory();
  DeviceWindowMemory(const DeviceWindowMemory&) = delete;
  DeviceWindowMemory& operator=(const DeviceWindowMemory&) = delete;

  const Ticket& ticket() const { return ticket_; }
  // Of another rank. False where that cannot be opened.
  bool openTensor(int rank, const Ticket& ticket);
  bool openSlots(int rank, const Ticket& ticket);
  // Why something could not be shared, or opened; empty where all could.
  const std::string& reason() const { return reason_; }
  // But the tensors and slots of those ranks.
  void closeOthersThan(const std::vector<int>& tensors, const std::vector<int>& slots);
  // Before their owners free them; and where they don't, again. Throws where that fails.
  void closeAll();
  void openAgain();

  // Of the memory of this rank's slots: nobody writes there; others may have it open for ever.
  void giveSlotsBack() { slots_.reset(); }
  void forsakeSlots();

  // The buffers of this rank's slot for one of the writers.
  std::byte* buffers(int writer) const;
  // Those of another rank's slot, the `place`-th of its writers'; and its tensor. As opened.
  std::byte* buffersAt(int rank, size_t place) const;
  const std::byte* tensorAt(int rank) const;

 private:
  struct Opened {
    bluefog_handle handle;
    uint64_t at;
    std::byte* block;  // null where it is closed

    std::byte* data() const { return block + at; }
  };
  using OpenedOf = std::map<int, Opened>;  // by rank

  bool open(OpenedOf& all, int rank, const Ticket& ticket, const bluefog_handle& handle,
            uint64_t at);

  const std::shared_ptr<DeviceHeap> heap_;
  const size_t bytes_;  // of a slot's buffers
  const std::vector<int> writers_;
  std::shared_ptr<std::byte> slots_;
  Ticket ticket_;
  OpenedOf tensors_;
  OpenedOf slots_of_;
  std::string reason_;
};

}  // namespace bluefog
