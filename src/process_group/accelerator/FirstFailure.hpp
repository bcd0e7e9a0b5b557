#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "transport/Failure.hpp"

namespace bluefog {

// The first failure of a group's calls on an accelerator, after which there are none. A Work keeps
// it, and may outlive the group. Thread safety: any thread may call any method.
class FirstFailure {
 public:
  explicit FirstFailure(std::string who) : who_(std::move(who)) {}

  // Returns false where there is one already.
  bool set(const Failure& failure) {
    const std::lock_guard lock(mutex_);
    if (failure_) {
      return false;
    }
    failure_ = failure;
    return true;
  }
  std::optional<Failure> get() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  // Throws it, if it is set. `call` is what raises it, as in "neighbor_allreduce #7 float32[4]".
  void check(const std::string& call) const {
    if (const std::optional<Failure> failure = get()) {
      const bool is_of_it = failure->reason.starts_with(call + ": ");
      throw Error(failure->cause, failure->ranks,
                  who_ + " " +
                      (is_of_it ? failure->reason + "; " + advice()
                                : call + ": " + advice() + " (" + failure->reason + ")"));
    }
  }
  // What its text says to do.
  static std::string advice() {
    return "calls with tensors on the accelerator are over in this group: make a new one";
  }

 private:
  const std::string who_;
  mutable std::mutex mutex_;
  std::optional<Failure> failure_;
};

}  // namespace bluefog
