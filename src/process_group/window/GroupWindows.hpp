#pragma once

#include <chrono>
#include <memory>
#include <mutex>

#include "process_group/window/WindowResources.hpp"
#include "transport/engine/Engine.hpp"

namespace bluefog {

// A GroupWindows makes what the windows of one group share, when the group makes its first window.
// That is the memory in which slots lie, the liveness of the peers, and the server for ranks that
// cannot write to this rank's memory themselves. It shares ownership of these with the windows, and
// keeps the engine.
// Thread safety: any thread may call any method, once setEngine() has returned.
class GroupWindows {
 public:
  // Sets the group's engine. It must be called once, before any other method.
  void setEngine(std::shared_ptr<Engine> engine, Engine::Interrupt interrupt);

  // Returns what a window needs whose tensor is moved into `heap`, which is null if this rank is
  // alone on its host. Throws if it is null and other ranks are on this host; `op` is the call.
  WindowResources onHost(std::shared_ptr<Heap> heap, std::chrono::milliseconds timeout,
                         const char* op = "win_create");
  // Turns what onHost() has returned into what a window takes whose tensor lies in that heap.
  WindowResources onDevice(WindowResources resources, std::shared_ptr<DeviceHeap> device);
  // Tells the ranks of this host that this one leaves. Their calls to it fail from now on.
  void leave();
  // Lets no other rank write to this one's windows any more.
  void release() { open_->release(); }

 private:
  void make();

  std::shared_ptr<Engine> engine_;
  Engine::Interrupt interrupt_;
  std::once_flag is_made_;
  std::once_flag serves_this_host_;
  std::shared_ptr<WindowMemory> memory_;
  std::shared_ptr<PeerLiveness> liveness_;
  std::shared_ptr<WindowServer> server_;
  const std::shared_ptr<OpenWindows> open_ = std::make_shared<OpenWindows>();
};

}  // namespace bluefog
