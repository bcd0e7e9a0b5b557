#pragma once

#include <exception>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "transport/engine/Engine.hpp"
#include "window/peer/Reach.hpp"

namespace bluefog {

[[noreturn]] void throwForked(const std::string& who);

// What a call of a window has begun.
struct WindowBegun {
  std::vector<int> dead = {};  // ranks that it has left out, global
  std::vector<Rest> rests = {};
  std::exception_ptr failure = {};
};

// What a call of a window still has under way to other ranks. Any thread may wait.
class WindowWork {
 public:
  struct Means {
    std::shared_ptr<Engine> engine;
    Engine::Interrupt interrupt;
    std::string who;  // the call is of, as what it raises begins
    bool drops;       // ranks that are dead, or turn out to be, are no error
  };
  WindowWork(Means means, WindowBegun begun) : means_(std::move(means)) {
    std::promise<WindowBegun> promise;
    promise.set_value(std::move(begun));
    begun_ = promise.get_future().share();
  }
  // Of one that another thread begins.
  WindowWork(Means means, std::future<WindowBegun> begun)
      : means_(std::move(means)), begun_(begun.share()) {}

  bool isCompleted() const;
  // Until all has ended; throws what failed, of dead ranks all at once.
  void wait();

 private:
  const Means means_;
  std::shared_future<WindowBegun> begun_;
};

}  // namespace bluefog
