#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "transport/operations/Failure.hpp"

namespace bluefog {

// A Condition is what a suspended task waits for. It lives in the coroutine's frame.
//
// Thread safety: only the thread that drives the engine may use it.
class Condition {
 public:
  // Looks whether the condition is fulfilled. It may move data meanwhile.
  virtual bool ready() = 0;
  // Returns whether the last ready() moved anything, even where it was not fulfilled.
  virtual bool moved() const { return false; }
  // Returns whether ready() stays false until Mailbox::takeRunnable() names the operation.
  virtual bool sleeps() const { return false; }
  // Returns the group ranks whose bytes, or whose room for bytes, are missing.
  virtual std::vector<int> missing() const = 0;
  // Returns the missing ranks that a timeout blames, which are not held up by others themselves.
  virtual std::vector<int> late() const { return missing(); }
  // Returns why the condition cannot be fulfilled any more, once a rank has said that it sends no
  // more of what is missing.
  virtual std::optional<Failure> brokenOff() const { return std::nullopt; }
  // Returns whether any one of the missing ranks would do, as for a receive from any source.
  virtual bool anyWillDo() const { return false; }

 protected:
  ~Condition() = default;
};

// A Task is an algorithm as a coroutine: straight-line code that says `co_await` where bytes or
// room may be missing. No thread blocks in it: the thread that drives the engine calls advance()
// and goes on to the next task. It owns the coroutine. When it is destroyed while it is suspended,
// nothing stays behind but what peers were told.
//
// Thread safety: only the thread that drives the engine may use it once its operation is posted.
class [[nodiscard]] Task {
 public:
  struct promise_type {
    Condition* waiting = nullptr;
    std::exception_ptr error;

    Task get_return_object() {
      return Task(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { error = std::current_exception(); }
  };
  using Handle = std::coroutine_handle<promise_type>;

  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  ~Task() {
    if (handle_) {
      handle_.destroy();
    }
  }

  bool done() const { return handle_.done(); }
  // Runs until the next condition that is not fulfilled. Returns whether anything moved. Throws
  // what the algorithm threw.
  bool advance() {
    Condition*& waiting = handle_.promise().waiting;
    if (waiting != nullptr && !waiting->ready()) {
      return waiting->moved();
    }
    waiting = nullptr;
    handle_.resume();
    if (handle_.promise().error) {
      std::rethrow_exception(handle_.promise().error);
    }
    return true;
  }
  // Returns what the task waits for; null before the first advance() and when it is done.
  const Condition* waiting() const { return handle_.promise().waiting; }

 private:
  explicit Task(Handle handle) : handle_(handle) {}

  Handle handle_;
};

// An Awaitable is a Condition that a task can co_await.
class Awaitable : public Condition {
 public:
  bool await_ready() { return ready(); }
  void await_suspend(Task::Handle handle) { handle.promise().waiting = this; }

 protected:
  ~Awaitable() = default;
};

// A Yield lets the rank's other tasks take a step. Tasks await it between two frames: otherwise a
// rank whose next frame is always there would only read, and its peer only write, and each would do
// its other half afterwards.
class Yield final : public Awaitable {
 public:
  bool ready() override { return std::exchange(over_, true); }
  std::vector<int> missing() const override { return {}; }
  void await_resume() {}

 private:
  bool over_ = false;
};

// A Join owns another task, and is fulfilled when that has ended. It throws what that threw.
class Join final : public Awaitable {
 public:
  explicit Join(Task task) : task_(std::move(task)) {}
  bool ready() override {
    moved_ = false;
    while (!task_.done() && task_.advance()) {
      moved_ = true;
    }
    return task_.done();
  }
  bool moved() const override { return moved_; }
  bool sleeps() const override { return task_.waiting()->sleeps(); }
  std::vector<int> missing() const override { return task_.waiting()->missing(); }
  std::vector<int> late() const override { return task_.waiting()->late(); }
  std::optional<Failure> brokenOff() const override { return task_.waiting()->brokenOff(); }
  void await_resume() {}

 private:
  Task task_;
  bool moved_ = false;
};

// A WaitUntil is fulfilled when the function `ready` returns true. Meanwhile `missing` returns the
// ranks that it waits for, and `late` those that a timeout blames.
template <class Ready, class Missing, class Late = Missing>
class WaitUntil final : public Awaitable {
 public:
  WaitUntil(Ready ready, Missing missing) : WaitUntil(ready, missing, missing) {}
  WaitUntil(Ready ready, Missing missing, Late late)
      : ready_(std::move(ready)), missing_(std::move(missing)), late_(std::move(late)) {}
  bool ready() override { return ready_(); }
  std::vector<int> missing() const override { return missing_(); }
  std::vector<int> late() const override { return late_(); }
  void await_resume() {}

 private:
  Ready ready_;
  Missing missing_;
  Late late_;
};

}  // namespace bluefog
