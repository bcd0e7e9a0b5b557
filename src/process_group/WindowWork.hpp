#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/Engine.hpp"
#include "window/Reach.hpp"

namespace bluefog {

[[noreturn]] void throwForked(const std::string& who);

// What a call of a window still has under way to other ranks. Any thread may wait.
class WindowWork {
 public:
  // `who` the call is of, as what it raises begins. `dead`: ranks that it has left out, global.
  // `drops`: they are no error, nor are those that turn out to be dead.
  WindowWork(std::shared_ptr<Engine> engine, std::string who, std::vector<int> dead,
             std::vector<Rest> rests, bool drops)
      : engine_(std::move(engine)),
        who_(std::move(who)),
        dead_(std::move(dead)),
        rests_(std::move(rests)),
        drops_(drops) {}

  bool isCompleted() const;
  // Until all has ended; throws what failed, of dead ranks all at once.
  void wait();

 private:
  const std::shared_ptr<Engine> engine_;
  const std::string who_;
  const std::vector<int> dead_;
  const std::vector<Rest> rests_;
  const bool drops_;
};

}  // namespace bluefog
