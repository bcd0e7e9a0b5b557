#pragma once

#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "core/Deadline.hpp"
#include "process_group/window/LocalMutexOwners.hpp"
#include "process_group/window/WindowLabel.hpp"
#include "window/SlotMutex.hpp"

namespace bluefog {

// WindowMutexes takes the mutexes of a window's edges for threads of this rank. It owns none of the
// SlotMutexes, which its hooks find.
// Thread safety: any thread may call any method.
class WindowMutexes {
 public:
  using Edge = LocalMutexOwners::Edge;
  struct MutexHooks {
    WindowLabel label;
    std::chrono::milliseconds timeout;
    std::function<SlotMutex*(const Edge&)> find;  // null if the owner has freed the window
    std::function<void(const char* op)> proceed;  // called while waiting; may throw
  };

  explicit WindowMutexes(MutexHooks hooks) : hooks_(std::move(hooks)) {}

  // Takes all of them, or throws and takes none. Edges whose owner is dead are left out. The
  // calling thread must hold none of them, and has to let them go.
  void take(const char* op, std::vector<Edge> edges);
  // Lets go of those that the calling thread has taken.
  void letGo(const std::vector<Edge>& edges);
  bool isMine(const Edge& edge) const { return owners_.isMine(edge); }

  // A ScopedLock holds edges for the calling thread as long as it lives. It leaves out those that
  // the thread already holds.
  class ScopedLock;

 private:
  void take(const char* op, const Edge& edge);
  void reserve(const char* op, const Edge& edge, Deadline deadline);
  void takeReserved(const char* op, const Edge& edge, Deadline deadline);
  [[noreturn]] void failLate(const char* op, int holder) const;

  const MutexHooks hooks_;
  LocalMutexOwners owners_;
};

class WindowMutexes::ScopedLock {
 public:
  ScopedLock(WindowMutexes& mutexes, const char* op, std::vector<Edge> edges, bool wanted);
  ~ScopedLock() { mutexes_.letGo(edges_); }
  ScopedLock(const ScopedLock&) = delete;
  ScopedLock& operator=(const ScopedLock&) = delete;

 private:
  WindowMutexes& mutexes_;
  std::vector<Edge> edges_;
};

}  // namespace bluefog
