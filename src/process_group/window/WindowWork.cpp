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
  if (issued_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    return false;
  }
  const std::vector<PendingOp>& pending = issued_.get().pending;
  return std::all_of(pending.begin(), pending.end(),
                     [](const PendingOp& op) { return op->hasEnded(); });
}

void WindowWork::wait() {
  if (context_.engine->isForked()) {
    throwForked(context_.who);
  }
  while (issued_.wait_for(kSlice) != std::future_status::ready) {
    TORCH_CHECK(!context_.engine->hasStopped(), context_.who, "the group has ended");
    if (context_.interrupt) {
      context_.interrupt();
    }
  }
  const WindowIssued& issued = issued_.get();
  for (const PendingOp& op : issued.pending) {
    context_.engine->wait(*op, Deadline::never());
  }
  std::vector<int> dead = issued.dead;
  std::exception_ptr other;
  for (const PendingOp& op : issued.pending) {
    const std::optional<Error> error = errorIn(op->error);
    if (error && error->cause() == Cause::kPeerFailed && !error->ranks().empty()) {
      dead.insert(dead.end(), error->ranks().begin(), error->ranks().end());
    } else if (op->error && !other) {
      other = op->error;
    }
  }
  if (other) {
    std::rethrow_exception(other);
  }
  if (!dead.empty() && !context_.drops) {
    std::sort(dead.begin(), dead.end());
    dead.erase(std::unique(dead.begin(), dead.end()), dead.end());
    throw Error(Cause::kPeerFailed, dead,
                context_.who + rankList(dead) +
                    " died, left the group or freed the window; the call is done with the others");
  }
  if (issued.failure) {
    std::rethrow_exception(issued.failure);
  }
}

}  // namespace bluefog
