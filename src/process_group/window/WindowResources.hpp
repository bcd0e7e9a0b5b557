#pragma once

#include <chrono>
#include <memory>

#include "device/DeviceHeap.hpp"
#include "transport/engine/Engine.hpp"
#include "window/memory/PeerLiveness.hpp"
#include "window/memory/WindowMemory.hpp"
#include "window/peer/WindowServer.hpp"

namespace bluefog {

// What a window takes from its group, and keeps alive after the group has ended.
struct WindowResources {
  std::shared_ptr<Engine> engine;
  std::shared_ptr<Heap> heap;  // of the tensor's kind of memory
  std::shared_ptr<WindowMemory> memory;
  std::shared_ptr<PeerLiveness> liveness;
  std::shared_ptr<WindowServer> server;  // null where nobody sends messages
  std::shared_ptr<DeviceHeap> device;    // null of a tensor of the CPU's
  Engine::Interrupt interrupt;
  std::chrono::milliseconds timeout;
};

}  // namespace bluefog
