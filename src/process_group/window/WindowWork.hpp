#pragma once

#include <exception>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "transport/engine/Engine.hpp"
#include "window/peer/PeerWindow.hpp"

namespace bluefog {

// Throws the error of a forked child that uses a window.
[[noreturn]] void throwForked(const std::string& who);

// WindowIssued is what a call of a window has begun.
struct WindowIssued {
  std::vector<int> dead = {};  // global ranks that were left out because they are dead
  std::vector<PendingOp> pending = {};
  std::exception_ptr failure = {};
};

// A WindowWork stands for what a call of a window still has under way to other ranks. It keeps the
// engine.
// Thread safety: any thread may call any method.
class WindowWork {
 public:
  struct CallContext {
    std::shared_ptr<Engine> engine;
    Engine::Interrupt interrupt;
    std::string who;  // how the call's errors begin
    bool drops;       // ranks that are dead, or turn out to be, are no error
  };
  WindowWork(CallContext context, WindowIssued issued) : context_(std::move(context)) {
    std::promise<WindowIssued> promise;
    promise.set_value(std::move(issued));
    issued_ = promise.get_future().share();
  }
  // Stands for a call that another thread begins.
  WindowWork(CallContext context, std::future<WindowIssued> issued)
      : context_(std::move(context)), issued_(issued.share()) {}

  bool isCompleted() const;
  // Waits until everything has ended. Throws what failed; the failures of dead ranks become one
  // error.
  void wait();

 private:
  const CallContext context_;
  std::shared_future<WindowIssued> issued_;
};

}  // namespace bluefog
