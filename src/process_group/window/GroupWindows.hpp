#pragma once

#include <chrono>
#include <memory>
#include <mutex>

#include "process_group/window/WindowResources.hpp"
#include "transport/engine/Engine.hpp"

namespace bluefog {

// What the windows of one group share: the memory in which slots lie, the liveness of the peers,
// and the server that does what ranks ask who cannot write here themselves. All of it is made when
// the group makes its first window.
//
// Thread safety: any thread may call any method, after setEngine().
class GroupWindows {
 public:
  // Has to be called once, before anything else.
  void setEngine(std::shared_ptr<Engine> engine, Engine::Interrupt interrupt);

  // Returns what a window takes whose tensor is moved into `heap`, which is null where this rank is
  // alone on its host. Throws where ranks of this host share no memory.
  WindowResources onHost(std::shared_ptr<Heap> heap, std::chrono::milliseconds timeout);
  // Returns what a window takes whose tensor is on a device. `device` is null where the device's
  // memory cannot be shared: then the window's data goes through `heap`.
  WindowResources onDevice(std::shared_ptr<DeviceHeap> device, std::shared_ptr<Heap> heap,
                           std::chrono::milliseconds timeout);
  // Tells the ranks of this host that this one leaves.
  void leave();

 private:
  void make();

  std::shared_ptr<Engine> engine_;
  Engine::Interrupt interrupt_;
  std::once_flag is_made_;
  std::once_flag serves_this_host_;
  std::shared_ptr<WindowMemory> memory_;
  std::shared_ptr<PeerLiveness> liveness_;
  std::shared_ptr<WindowServer> server_;
};

}  // namespace bluefog
