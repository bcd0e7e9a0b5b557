#include "bootstrap/StoreThread.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "core/Error.hpp"

namespace bluefog {
namespace {

constexpr std::chrono::milliseconds kBetweenInterrupts{100};
// Also past the deadline: the others are to be told why.
constexpr std::chrono::milliseconds kLeastPatience{1000};

}  // namespace

StoreThread::StoreThread(c10::intrusive_ptr<c10d::Store> store, std::string name, Deadline deadline,
                         std::function<void()> interrupt)
    : shared_(std::make_shared<Shared>()),
      name_(std::move(name)),
      deadline_(deadline),
      interrupt_(std::move(interrupt)) {
  shared_->store = std::move(store);
  thread_ = std::thread([shared = shared_] { serve(shared); });
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
    shared->error = error;
    shared->call = nullptr;
    shared->changed.notify_all();
  }
}

void StoreThread::run(const Call& call) {
  const std::lock_guard one(one_);
  const Deadline limit = Deadline::in(
      std::max(kLeastPatience, std::chrono::ceil<std::chrono::milliseconds>(deadline_.left())));
  std::unique_lock lock(shared_->mutex);
  if (shared_->call) {
    giveUp();  // on an earlier one
  }
  shared_->call = call;
  shared_->error = nullptr;
  shared_->changed.notify_all();
  while (shared_->call) {
    if (limit.passed()) {
      giveUp();
    }
    shared_->changed.wait_for(lock, kBetweenInterrupts);
    if (shared_->call && interrupt_) {
      lock.unlock();
      interrupt_();
      lock.lock();
    }
  }
  if (shared_->error) {
    std::rethrow_exception(shared_->error);
  }
}

void StoreThread::giveUp() const {
  throw Error(Cause::kTimeout, {},
              "timeout after " + inSeconds(deadline_.limit()) + "; " + name_ + " does not answer");
}

}  // namespace bluefog
