#include "process_group/window/GroupWindows.hpp"

#include <c10/util/Exception.h>

#include <utility>
#include <vector>

namespace bluefog {

void GroupWindows::setEngine(std::shared_ptr<Engine> engine, Engine::Interrupt interrupt) {
  engine_ = std::move(engine);
  interrupt_ = std::move(interrupt);
}

void GroupWindows::make() {
  std::call_once(is_made_, [&] {
    memory_ = std::make_shared<WindowMemory>(engine_->segments(), engine_->members().rank);
    liveness_ = std::make_shared<PeerLiveness>(engine_->processes());
    server_ = std::make_shared<WindowServer>(*engine_, liveness_);
    server_->open(engine_->hosts().elsewhere());
  });
}

WindowResources GroupWindows::onHost(std::shared_ptr<Heap> heap, std::chrono::milliseconds timeout,
                                     const char* op) {
  const HostMap& hosts = engine_->hosts();
  TORCH_CHECK(
      heap != nullptr || hosts.here().size() == 1, engine_->members().who(), " ", op,
      ": ranks share no memory here; is the process limited in its addresses or the size of "
      "files (ulimit -v, -f)?");
  make();
  return {.engine = engine_,
          .heap = std::move(heap),
          .memory = memory_,
          .liveness = liveness_,
          .server = hosts.elsewhere().empty() ? nullptr : server_,
          .device = nullptr,
          .open = open_,
          .interrupt = interrupt_,
          .timeout = timeout};
}

WindowResources GroupWindows::onDevice(WindowResources resources,
                                       std::shared_ptr<DeviceHeap> device) {
  std::call_once(serves_this_host_, [&] {
    std::vector<int> others = engine_->hosts().here();
    std::erase(others, engine_->members().rank);
    server_->open(others);
  });
  resources.heap = device;
  resources.device = std::move(device);
  resources.server = server_;
  return resources;
}

void GroupWindows::leave() {
  if (memory_) {
    memory_->leave();
  }
}

}  // namespace bluefog
