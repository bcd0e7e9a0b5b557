#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace bluefog {

// Which thread of this process holds, or asks for, the mutex of an edge: to the other rank all of
// them are one. Any thread may use it.
class LocalMutexOwners {
 public:
  using Edge = std::pair<int, int>;  // (owner, writer) of a slot

  bool isMine(const Edge& edge) const {
    const std::lock_guard lock(mutex_);
    const auto found = threads_.find(edge);
    return found != threads_.end() && found->second == std::this_thread::get_id();
  }
  // Waits so long for another thread that has it; false where that goes on.
  bool reserve(const Edge& edge, std::chrono::nanoseconds limit) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, limit, [&] { return !threads_.contains(edge); })) {
      return false;
    }
    threads_[edge] = std::this_thread::get_id();
    return true;
  }
  void release(const Edge& edge) {
    const std::lock_guard lock(mutex_);
    threads_.erase(edge);
    changed_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Edge, std::thread::id> threads_;
};

}  // namespace bluefog
