// The streams of a simulated accelerator are threads, which run what is put there one after the
// other. A stream that had work a short time ago looks for more by itself, so that put() needs no
// system call. The queue of a GPU costs its host no system call, either.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace simulated {

// A Stream runs work in a thread that is never joined, in the order of put().
// Thread safety: any thread may put work there and wait for it.
class Stream {
 public:
  using Work = std::function<void()>;

  Stream() {
    std::thread([this] { run(); }).detach();
  }

  void put(Work work) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(work));
    ++put_;
    if (is_asleep_) {
      put_here_.notify_all();
    }
  }
  void synchronize() {
    std::unique_lock lock(mutex_);
    reached_.wait(lock, [this, until = put_] { return done_ >= until; });
  }
  bool isIdle() {
    const std::lock_guard lock(mutex_);
    return done_ == put_;
  }

 private:
  static constexpr std::chrono::milliseconds kAwake{5};
  static constexpr std::chrono::microseconds kBetweenLooks{20};

  [[noreturn]] void run() {
    for (;;) {
      next()();
      const std::lock_guard lock(mutex_);
      ++done_;
      reached_.notify_all();
    }
  }
  Work next() {
    const auto enough = std::chrono::steady_clock::now() + kAwake;
    std::unique_lock lock(mutex_);
    while (waiting_.empty()) {
      if (std::chrono::steady_clock::now() < enough) {
        lock.unlock();
        std::this_thread::sleep_for(kBetweenLooks);
        lock.lock();
      } else {
        is_asleep_ = true;
        put_here_.wait(lock, [this] { return !waiting_.empty(); });
        is_asleep_ = false;
      }
    }
    Work work = std::move(waiting_.front());
    waiting_.pop_front();
    return work;
  }

  std::mutex mutex_;
  std::condition_variable put_here_;
  std::condition_variable reached_;
  bool is_asleep_ = false;
  std::deque<Work> waiting_;
  uint64_t put_ = 0;
  uint64_t done_ = 0;
};

// An Event is a mark in a stream for which others can wait. Each record() makes a later version of
// it.
// Thread safety: any thread.
class Event {
 public:
  void record(Stream& stream) {
    const uint64_t version = ++state_->recorded;
    stream.put([state = state_, version] {
      const std::lock_guard lock(state->mutex);
      state->reached = std::max(state->reached, version);
      state->changed.notify_all();
    });
  }
  void block(Stream& stream) const {
    stream.put([state = state_, version = state_->recorded.load()] { state->wait(version); });
  }
  void synchronize() const { state_->wait(state_->recorded); }
  bool isReached() const {
    const std::lock_guard lock(state_->mutex);
    return state_->reached >= state_->recorded;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::atomic<uint64_t> recorded{0};
    uint64_t reached = 0;

    void wait(uint64_t version) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return reached >= version; });
    }
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// Stream 0 is the default stream. The streams live as long as the process.
constexpr int kStreams = 8;
Stream& stream(int64_t id);
// Returns the current stream of the calling thread.
int64_t currentId();
int64_t exchangeCurrentId(int64_t id);
inline Stream& current() {
  return stream(currentId());
}

}  // namespace simulated
