#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "core/Thread.hpp"

namespace bluefog {

// A thread that does what it is given, one after the other; it starts with the first. Any thread
// may give. In a forked child there is no such thread, and the object must not be destroyed.
class Worker {
 public:
  using Task = std::function<void()>;  // must not throw

  Worker() = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  // Does what it was given before.
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
    changed_.notify_all();
  }
  // Until all has been done that it was given; false when the limit passed first.
  bool awaitAll(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [this] { return tasks_.empty(); });
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
        const Task task = tasks_.front();
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
  std::deque<Task> tasks_;  // the first one is being done
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace bluefog
