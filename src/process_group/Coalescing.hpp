#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace bluefog {

// What a thread has called between startCoalescing() and endCoalescing().
class Coalescing {
 public:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

  // False where this thread has begun already.
  bool begin() {
    const std::lock_guard lock(mutex_);
    const bool begun = batches_.try_emplace(std::this_thread::get_id()).second;
    open_ = static_cast<int>(batches_.size());
    return begun;
  }
  bool isOn() const {
    if (open_.load(std::memory_order_relaxed) == 0) {
      return false;
    }
    const std::lock_guard lock(mutex_);
    return batches_.contains(std::this_thread::get_id());
  }
  void add(Works::value_type work) {
    const std::lock_guard lock(mutex_);
    batches_.at(std::this_thread::get_id()).push_back(std::move(work));
  }
  Works end() {
    const std::lock_guard lock(mutex_);
    auto batch = batches_.extract(std::this_thread::get_id());
    open_ = static_cast<int>(batches_.size());
    return batch.empty() ? Works() : std::move(batch.mapped());
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::thread::id, Works> batches_;
  std::atomic<int> open_{0};
};

}  // namespace bluefog
