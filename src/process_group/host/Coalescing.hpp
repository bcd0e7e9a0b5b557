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

// A Coalescing keeps a batch for each thread that is between startCoalescing() and endCoalescing().
// A batch holds the Works of what the thread has called since.
// Thread safety: any thread may call any method.
class Coalescing {
 public:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;
  struct Batch {
    Works works;
    bool is_open_on_device = false;  // begun in an accelerator's backend, too
  };

  // Begins a batch for the calling thread. It drops a batch that the thread has begun before, and
  // those of threads that have ended. An exception inside torch's context manager leaves such
  // batches behind.
  void begin() {
    std::map<pid_t, Batch> given_up;  // destroyed once the mutex is free
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
  // Returns whether the calling thread has a batch.
  bool isOn() const {
    if (open_.load(std::memory_order_relaxed) == 0) {
      return false;
    }
    const std::lock_guard lock(mutex_);
    return batches_.contains(thread());
  }
  // Adds a Work to the calling thread's batch, which must exist.
  void add(Works::value_type work) {
    const std::lock_guard lock(mutex_);
    batches_.at(thread()).works.push_back(std::move(work));
  }
  // Returns whether the calling thread has a batch that is still to be begun in the accelerator's
  // backend. From then on the batch counts as begun there, so the caller must begin it.
  bool opensOnDevice() {
    if (!isOn()) {
      return false;
    }
    const std::lock_guard lock(mutex_);
    return !std::exchange(batches_.at(thread()).is_open_on_device, true);
  }
  // Ends the calling thread's batch and returns it, or an empty one if there is none.
  Batch end() {
    const std::lock_guard lock(mutex_);
    auto batch = batches_.extract(thread());
    open_ = static_cast<int>(batches_.size());
    return batch.empty() ? Batch() : std::move(batch.mapped());
  }

 private:
  // Returns the kernel's number of the calling thread. A std::thread::id would not do, because a
  // new thread may get the one of a thread that has just ended.
  static pid_t thread() { return ::gettid(); }
  static bool hasEnded(pid_t thread) {
    return ::tgkill(::getpid(), thread, 0) != 0 && errno == ESRCH;
  }

  mutable std::mutex mutex_;
  std::map<pid_t, Batch> batches_;
  std::atomic<int> open_{0};  // number of batches, so that isOn() rarely takes the mutex
};

}  // namespace bluefog
