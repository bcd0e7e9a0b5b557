#include "process_group/WindowWork.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/Error.hpp"

namespace bluefog {

void throwForked(const std::string& who) {
  TORCH_CHECK(false, who, "this process was forked from the rank's and has no part in its windows");
}

bool WindowWork::isCompleted() const {
  return std::all_of(rests_.begin(), rests_.end(),
                     [](const Rest& rest) { return rest->hasEnded(); });
}

void WindowWork::wait() {
  if (engine_->isForked()) {
    throwForked(who_);
  }
  for (const Rest& rest : rests_) {
    engine_->wait(*rest, Deadline::never());
  }
  std::vector<int> dead = dead_;
  std::exception_ptr other;
  for (const Rest& rest : rests_) {
    const std::optional<Error> error = errorIn(rest->error);
    if (error && error->cause() == Cause::kPeerFailed && !error->ranks().empty()) {
      dead.insert(dead.end(), error->ranks().begin(), error->ranks().end());
    } else if (rest->error && !other) {
      other = rest->error;
    }
  }
  if (other) {
    std::rethrow_exception(other);
  }
  if (!dead.empty() && !drops_) {
    std::sort(dead.begin(), dead.end());
    dead.erase(std::unique(dead.begin(), dead.end()), dead.end());
    throw Error(Cause::kPeerFailed, dead,
                who_ + rankList(dead) + " died; with the others it is done");
  }
}

}  // namespace bluefog
