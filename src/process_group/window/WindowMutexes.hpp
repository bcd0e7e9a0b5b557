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

// The mutexes of a window's edges, as threads of this rank take them. Any thread may use it.
class WindowMutexes {
 public:
  using Edge = LocalMutexOwners::Edge;
  struct MutexHooks {
    WindowLabel label;
    std::chrono::milliseconds timeout;
    std::function<SlotMutex*(const Edge&)> find;  // null where its owner has freed the window
    std::function<void(const char* op)> proceed;  // throws what ends a wait
  };

  explicit WindowMutexes(MutexHooks hooks) : hooks_(std::move(hooks)) {}

  // All of them, or none where one cannot be had; but those whose owner is dead. This thread must
  // hold none of them, and has to let them go.
  void take(const char* op, std::vector<Edge> edges);
  // Those that this thread has taken.
  void letGo(const std::vector<Edge>& edges);
  bool isMine(const Edge& edge) const { return owners_.isMine(edge); }

  // Edges that are this thread's for so long.
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
