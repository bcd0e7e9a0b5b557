#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "core/Thread.hpp"

namespace bluefog {

// A Worker runs the tasks that it is given one after the other in a thread of its own, which starts
// with the first task. In a forked child there is no such thread, and the object must not be
// destroyed.
// Thread safety: any thread may call post(), given() and await().
class Worker {
 public:
  using Task = std::function<void()>;  // must not throw

  Worker() = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  // Runs the tasks that were posted before, and then joins the thread.
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) {
      thread_.join();
    }
  }

  void post(Task task) {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) {
      thread_ = startThread([this] { run(); });
    }
    tasks_.push_back(std::move(task));
    ++given_;
    changed_.notify_all();
  }
  // Returns how many tasks were posted so far.
  uint64_t given() {
    const std::lock_guard lock(mutex_);
    return given_;
  }
  // Waits until `count` tasks have ended since construction. Returns false when the limit passed
  // first.
  bool await(uint64_t count, std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return given_ - tasks_.size() >= count; });
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ends_ || !tasks_.empty(); });
      if (tasks_.empty()) {
        return;
      }
      {
        const Task task = std::move(tasks_.front());
        lock.unlock();
        task();
      }
      lock.lock();
      tasks_.pop_front();
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;  // the first task is running, or runs next
  uint64_t given_ = 0;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace bluefog
