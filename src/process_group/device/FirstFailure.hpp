#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "transport/operations/Failure.hpp"

namespace bluefog {

// A FirstFailure holds the first failure of a group's calls on an accelerator, once there is one.
// After it there are no more such calls. The calls' Works keep it, and may outlive the group.
// Thread safety: any thread may call any method.
class FirstFailure {
 public:
  explicit FirstFailure(std::string who) : who_(std::move(who)) {}

  // Records the failure. Returns false if there is one already.
  bool set(const Failure& failure) {
    const std::lock_guard lock(mutex_);
    if (failure_) {
      return false;
    }
    failure_ = failure;
    is_set_ = true;
    return true;
  }
  bool isSet() const { return is_set_; }
  std::optional<Failure> get() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  // Throws the failure if there is one. `call` names the call that raises it, as in
  // "neighbor_allreduce #7 float32[4]".
  void check(std::string_view call) const {
    if (!isSet()) {
      return;
    }
    const Failure failure = *get();
    const std::string raising = std::string(call) + ": ";
    const bool is_of_it = failure.reason.starts_with(raising);
    throw Error(failure.cause, failure.ranks,
                who_ + " " +
                    (is_of_it ? failure.reason + "; " + advice()
                              : raising + advice() + " (" + failure.reason + ")"));
  }
  // Returns the failure with the name of the call that has failed, for other calls and other ranks.
  static Failure of(const std::string& call, Failure failure) {
    failure.reason = call + ": " + failure.reason;
    return failure;
  }
  // Returns the part of an error's text that says what to do.
  static std::string advice() {
    return "calls with tensors on the accelerator are over in this group: make a new one";
  }

 private:
  const std::string who_;
  std::atomic<bool> is_set_{false};
  mutable std::mutex mutex_;
  std::optional<Failure> failure_;
};

}  // namespace bluefog
