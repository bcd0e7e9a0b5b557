#include "process_group/WindowWork.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/Error.hpp"

namespace bluefog {

bool WindowWork::isCompleted() const {
  return std::all_of(rests_.begin(), rests_.end(),
                     [](const Rest& rest) { return rest->hasEnded(); });
}

void WindowWork::wait() {
  for (const Rest& rest : rests_) {
    engine_->wait(*rest, Deadline::never());
  }
  std::vector<int> dead = dead_;
  std::exception_ptr other;
  for (const Rest& rest : rests_) {
    try {
      if (rest->error) {
        std::rethrow_exception(rest->error);
      }
    } catch (const Error& error) {
      if (error.cause() == Cause::kPeerFailed) {
        dead.insert(dead.end(), error.ranks().begin(), error.ranks().end());
      } else if (!other) {
        other = std::current_exception();
      }
    }
  }
  if (other) {
    std::rethrow_exception(other);
  }
  if (!dead.empty() && !drops_) {
    std::sort(dead.begin(), dead.end());
    dead.erase(std::unique(dead.begin(), dead.end()), dead.end());
    throw Error(Cause::kPeerFailed, dead, who_ + rankList(dead) + " died; the others have got it");
  }
}

}  // namespace bluefog
