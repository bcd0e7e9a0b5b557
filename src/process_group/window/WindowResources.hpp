#pragma once

#include <chrono>
#include <memory>

#include "device/DeviceHeap.hpp"
#include "process_group/window/OpenWindows.hpp"
#include "transport/engine/Engine.hpp"
#include "window/memory/PeerLiveness.hpp"
#include "window/memory/WindowMemory.hpp"
#include "window/peer/WindowServer.hpp"

namespace bluefog {

// WindowResources is what a window needs from its group, and keeps alive after the group has ended.
struct WindowResources {
  std::shared_ptr<Engine> engine;
  std::shared_ptr<Heap> heap;  // for the tensor's kind of memory
  std::shared_ptr<WindowMemory> memory;
  std::shared_ptr<PeerLiveness> liveness;
  std::shared_ptr<WindowServer> server;  // null if no rank sends messages to this one's windows
  std::shared_ptr<DeviceHeap> device;    // null for a tensor on the CPU
  std::shared_ptr<OpenWindows> open;
  Engine::Interrupt interrupt;
  std::chrono::milliseconds timeout;
};

}  // namespace bluefog
