#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace bluefog {

// LocalMutexOwners says which thread of this process holds the mutex of an edge, or waits for it.
// The mutex itself is held by a rank, so it cannot tell the threads of one rank apart.
// Thread safety: any thread may call any method.
class LocalMutexOwners {
 public:
  using Edge = std::pair<int, int>;  // owner and writer of a slot, as group ranks

  // Returns whether the calling thread has reserved the edge.
  bool isMine(const Edge& edge) const {
    const std::lock_guard lock(mutex_);
    const auto found = threads_.find(edge);
    return found != threads_.end() && found->second == std::this_thread::get_id();
  }
  // Reserves the edge for the calling thread. Waits up to `limit` for another thread that has it,
  // and returns false if that keeps it.
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
