// This file holds the part of Engine that concerns its own threads, and the callbacks that they
// run.
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "core/Thread.hpp"
#include "transport/engine/Engine.hpp"

namespace bluefog {
namespace {

// The engine's thread looks at this interval for what ranks on other hosts send, while this rank
// waits for nothing.
constexpr std::chrono::milliseconds kLookElsewhere{10};

}  // namespace

bool Engine::isOwnThread() const {
  return std::count(thread_ids_.begin(), thread_ids_.end(), std::this_thread::get_id()) > 0;
}

void Engine::ensureThread() {
  if (threads_.size() > calling_back_ || end_) {
    return;
  }
  try {
    threads_.push_back(startThread([this] { run(); }));
  } catch (const std::system_error& error) {
    throw std::runtime_error(members_.who() +
                             ": the engine's thread cannot be started: " + error.what());
  }
  thread_ids_.push_back(threads_.back().get_id());
  ::pthread_setname_np(threads_.back().native_handle(), "bluefog-engine");
}

bool Engine::rouseThread() {
  try {
    ensureThread();
  } catch (const std::runtime_error&) {
    return false;
  }
  work_.notify_one();
  wakeDriver();
  return !end_;
}

void Engine::run() {
  EventCount& event_count = segment_.eventCount(members_.rank);
  std::unique_lock lock(mutex_);
  while (!end_) {
    if (on_duty_ == std::this_thread::get_id()) {
      on_duty_ = {};
    }
    if (!to_call_back_.empty()) {
      callBack(lock);
      continue;
    }
    const bool may_drive = waiting_ == 0 && !driving_ && on_duty_ == std::thread::id();
    if (!hasWork() || !may_drive) {
      if (!scheduler_.spansHosts()) {
        work_.wait(lock);
      } else if (work_.wait_for(lock, kLookElsewhere) == std::cv_status::timeout && may_drive &&
                 waiting_ == 0 && !driving_ && !end_) {
        driveAndConclude(lock, Who::kEngine);
      }
      continue;
    }
    on_duty_ = std::this_thread::get_id();
    // The thread announces its sleep before it looks, so that whatever comes after the look wakes
    // it.
    const uint32_t ticket = event_count.prepareWait();
    const size_t before = pending_;
    driveAndConclude(lock, Who::kEngine);
    if (pending_ != before || waiting_ > 0 || driving_ || end_ || !to_call_back_.empty()) {
      continue;
    }
    const std::chrono::nanoseconds limit = sleepTime();  // nobody drives the scheduler now
    lock.unlock();
    event_count.wait(ticket, limit);
    lock.lock();
  }
}

// Callbacks may run anything, also operations of this group. So they run without the lock and while
// this thread does not drive. They run on one of the engine's threads where there is one, and so
// not inside a caller's wait for something else.
void Engine::callBack(std::unique_lock<std::mutex>& lock) {
  Ops ended;
  ended.swap(to_call_back_);
  const bool own = isOwnThread();
  if (own) {
    ++calling_back_;
    on_duty_ = {};
    if (hasWork() || scheduler_.spansHosts()) {
      rouseThread();
    }
  }
  lock.unlock();
  for (const auto& op : ended) {
    op->finished(*op);
  }
  lock.lock();
  if (own) {
    --calling_back_;
  }
  deferred_release_.ops.insert(deferred_release_.ops.end(), ended.begin(), ended.end());
}

}  // namespace bluefog
