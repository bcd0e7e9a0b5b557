#pragma once

#include <exception>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "transport/engine/Engine.hpp"
#include "window/peer/PeerWindow.hpp"

namespace bluefog {

[[noreturn]] void throwForked(const std::string& who);

// What a call of a window has issued.
struct WindowIssued {
  std::vector<int> dead = {};  // ranks that it has left out, global
  std::vector<PendingOp> pending = {};
  std::exception_ptr failure = {};
};

// What a call of a window still has under way to other ranks. Any thread may wait.
class WindowWork {
 public:
  struct CallContext {
    std::shared_ptr<Engine> engine;
    Engine::Interrupt interrupt;
    std::string who;  // the call is of, as what it raises begins
    bool drops;       // ranks that are dead, or turn out to be, are no error
  };
  WindowWork(CallContext context, WindowIssued issued) : context_(std::move(context)) {
    std::promise<WindowIssued> promise;
    promise.set_value(std::move(issued));
    issued_ = promise.get_future().share();
  }
  // Of one that another thread begins.
  WindowWork(CallContext context, std::future<WindowIssued> issued)
      : context_(std::move(context)), issued_(issued.share()) {}

  bool isCompleted() const;
  // Until all has ended; throws what failed, of dead ranks all at once.
  void wait();

 private:
  const CallContext context_;
  std::shared_future<WindowIssued> issued_;
};

}  // namespace bluefog
