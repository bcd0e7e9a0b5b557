#include "process_group/window/WindowMutexes.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "core/Error.hpp"
#include "process_group/window/WindowSlice.hpp"
#include "window/peer/PeerWindow.hpp"

namespace bluefog {
void WindowMutexes::take(const char* op, std::vector<Edge> edges) {
  // All ranks take the mutexes in this order, so that no two ranks can wait for each other.
  std::sort(edges.begin(), edges.end());
  for (auto edge = edges.begin(); edge != edges.end(); ++edge) {
    try {
      take(op, *edge);
    } catch (...) {
      letGo(std::vector<Edge>(edges.begin(), edge));
      throw;
    }
  }
}

void WindowMutexes::take(const char* op, const Edge& edge) {
  const Deadline deadline = Deadline::in(hooks_.timeout);
  reserve(op, edge, deadline);
  try {
    takeReserved(op, edge, deadline);
  } catch (const Error& error) {
    owners_.release(edge);
    const int owner = hooks_.label.members.global(edge.first);
    const std::vector<int>& ranks = error.ranks();
    if (error.cause() != Cause::kPeerFailed ||
        std::find(ranks.begin(), ranks.end(), owner) == ranks.end()) {
      throw;  // only a dead owner is no error: nothing is left to exclude
    }
  } catch (...) {
    owners_.release(edge);
    throw;
  }
}

void WindowMutexes::reserve(const char* op, const Edge& edge, Deadline deadline) {
  while (!owners_.reserve(edge, kSlice)) {
    if (deadline.passed()) {
      failLate(op, hooks_.label.members.rank);
    }
    hooks_.proceed(op);
  }
}

void WindowMutexes::takeReserved(const char* op, const Edge& edge, Deadline deadline) {
  SlotMutex* mutex = hooks_.find(edge);
  if (mutex == nullptr) {
    throw noSuchWindow(hooks_.label.who(op), hooks_.label.members.global(edge.first));
  }
  while (const std::optional<int> holder = mutex->take()) {
    if (deadline.passed()) {
      failLate(op, *holder);
    }
    hooks_.proceed(op);
    mutex->await(*holder, kSlice);
  }
}

void WindowMutexes::failLate(const char* op, int holder) const {
  const int rank = hooks_.label.members.global(holder);
  throw Error(Cause::kTimeout, {rank},
              hooks_.label.who(op) + "timeout after " + inSeconds(hooks_.timeout) + "; rank " +
                  std::to_string(rank) + " holds the mutex");
}

void WindowMutexes::letGo(const std::vector<Edge>& edges) {
  for (const Edge& edge : edges) {
    if (!owners_.isMine(edge)) {
      continue;  // it was not taken, because the owner is dead
    }
    if (SlotMutex* mutex = hooks_.find(edge)) {
      mutex->letGo();
    }
    owners_.release(edge);
  }
}

WindowMutexes::ScopedLock::ScopedLock(WindowMutexes& mutexes, const char* op,
                                      std::vector<Edge> edges, bool wanted)
    : mutexes_(mutexes) {
  if (wanted) {
    std::erase_if(edges, [&](const Edge& edge) { return mutexes.isMine(edge); });
    mutexes.take(op, edges);
    edges_ = std::move(edges);
  }
}

}  // namespace bluefog
