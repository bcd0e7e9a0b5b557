#pragma once

#include <signal.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <cerrno>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace bluefog {

// What a thread has called between startCoalescing() and endCoalescing().
class Coalescing {
 public:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;
  struct Batch {
    Works works;
    bool is_open_on_device = false;  // also in an accelerator's backend
  };

  // What is begun already is given up: an exception inside of torch's context manager ends no
  // batch.
  void begin() {
    std::map<pid_t, Batch> given_up;  // destroyed when the mutex is free again
    const std::lock_guard lock(mutex_);
    for (auto it = batches_.begin(); it != batches_.end();) {
      const auto next = std::next(it);
      if (it->first == thread() || hasEnded(it->first)) {
        given_up.insert(batches_.extract(it));
      }
      it = next;
    }
    batches_[thread()];
    open_ = static_cast<int>(batches_.size());
  }
  bool isOn() const {
    if (open_.load(std::memory_order_relaxed) == 0) {
      return false;
    }
    const std::lock_guard lock(mutex_);
    return batches_.contains(thread());
  }
  void add(Works::value_type work) {
    const std::lock_guard lock(mutex_);
    batches_.at(thread()).works.push_back(std::move(work));
  }
  // Whether this thread has a batch that is not open there yet; then it counts as open.
  bool opensOnDevice() {
    if (!isOn()) {
      return false;
    }
    const std::lock_guard lock(mutex_);
    return !std::exchange(batches_.at(thread()).is_open_on_device, true);
  }
  Batch end() {
    const std::lock_guard lock(mutex_);
    auto batch = batches_.extract(thread());
    open_ = static_cast<int>(batches_.size());
    return batch.empty() ? Batch() : std::move(batch.mapped());
  }

 private:
  // The kernel's number: std::thread::id goes to the next thread at once when one ends.
  static pid_t thread() { return ::gettid(); }
  static bool hasEnded(pid_t thread) {
    return ::tgkill(::getpid(), thread, 0) != 0 && errno == ESRCH;
  }

  mutable std::mutex mutex_;
  std::map<pid_t, Batch> batches_;
  std::atomic<int> open_{0};
};

}  // namespace bluefog
