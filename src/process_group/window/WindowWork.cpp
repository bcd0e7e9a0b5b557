#include "process_group/window/WindowWork.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "core/Error.hpp"
#include "process_group/window/WindowSlice.hpp"

namespace bluefog {
void throwForked(const std::string& who) {
  TORCH_CHECK(false, who, "this process was forked from the rank's and has no part in its windows");
}

bool WindowWork::isCompleted() const {
  if (begun_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    return false;
  }
  const std::vector<Rest>& rests = begun_.get().rests;
  return std::all_of(rests.begin(), rests.end(), [](const Rest& rest) { return rest->hasEnded(); });
}

void WindowWork::wait() {
  if (means_.engine->isForked()) {
    throwForked(means_.who);
  }
  while (begun_.wait_for(kSlice) != std::future_status::ready) {
    TORCH_CHECK(!means_.engine->hasStopped(), means_.who, "the group has ended");
    if (means_.interrupt) {
      means_.interrupt();
    }
  }
  const WindowBegun& begun = begun_.get();
  for (const Rest& rest : begun.rests) {
    means_.engine->wait(*rest, Deadline::never());
  }
  std::vector<int> dead = begun.dead;
  std::exception_ptr other;
  for (const Rest& rest : begun.rests) {
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
  if (!dead.empty() && !means_.drops) {
    std::sort(dead.begin(), dead.end());
    dead.erase(std::unique(dead.begin(), dead.end()), dead.end());
    throw Error(Cause::kPeerFailed, dead,
                means_.who + rankList(dead) +
                    " died, left the group or freed the window; with the others it is done");
  }
  if (begun.failure) {
    std::rethrow_exception(begun.failure);
  }
}

}  // namespace bluefog
