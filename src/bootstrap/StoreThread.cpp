#include "bootstrap/StoreThread.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "core/Error.hpp"
#include "core/Thread.hpp"

namespace bluefog {
namespace {

constexpr std::chrono::milliseconds kBetweenInterrupts{100};
// A call may take at least this long even past the deadline, so that this rank can still tell the
// others why it gives up.
constexpr std::chrono::milliseconds kLeastTimeout{1000};

}  // namespace

StoreThread::StoreThread(c10::intrusive_ptr<c10d::Store> store, std::string name, Deadline deadline,
                         std::function<void()> interrupt)
    : shared_(std::make_shared<Shared>()),
      name_(std::move(name)),
      deadline_(deadline),
      interrupt_(std::move(interrupt)) {
  shared_->store = std::move(store);
  thread_ = startThread([shared = shared_] { serve(shared); });
}

StoreThread::~StoreThread() {
  bool is_free = false;
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->is_over = true;
    shared_->changed.notify_all();
    is_free = !shared_->call;
  }
  if (is_free) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void StoreThread::serve(const std::shared_ptr<Shared>& shared) {
  std::unique_lock lock(shared->mutex);
  while (true) {
    shared->changed.wait(lock, [&] { return shared->call || shared->is_over; });
    if (!shared->call) {
      return;
    }
    const Call call = shared->call;
    lock.unlock();
    std::exception_ptr error;
    try {
      call(*shared->store);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    shared->ended->error = error;
    shared->ended->has = true;
    shared->call = nullptr;
    shared->changed.notify_all();
  }
}

void StoreThread::run(const Call& call) {
  const Deadline limit = Deadline::in(
      std::max(kLeastTimeout, std::chrono::ceil<std::chrono::milliseconds>(deadline_.left())));
  const auto ended = std::make_shared<Ended>();
  std::unique_lock lock(shared_->mutex);
  // A call of another thread may be in progress.
  await(lock, limit, [&] { return !shared_->call; });
  shared_->call = call;
  shared_->ended = ended;
  shared_->changed.notify_all();
  await(lock, limit, [&] { return ended->has; });
  if (ended->error) {
    std::rethrow_exception(ended->error);
  }
}

void StoreThread::await(std::unique_lock<std::mutex>& lock, Deadline limit,
                        const std::function<bool()>& ready) const {
  while (!ready()) {
    if (limit.passed()) {
      giveUp();
    }
    shared_->changed.wait_for(lock, kBetweenInterrupts);
    if (!ready() && interrupt_) {
      lock.unlock();
      interrupt_();
      lock.lock();
    }
  }
}

void StoreThread::giveUp() const {
  throw Error(Cause::kTimeout, {},
              "timeout after " + inSeconds(deadline_.limit()) + "; " + name_ + " does not answer");
}

}  // namespace bluefog
