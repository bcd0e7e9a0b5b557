#pragma once

#include <algorithm>
#include <chrono>

namespace bluefog {

// A Deadline is the point in monotonic time after which an operation has failed. Callers pass it
// down and never compute it anew, so all parts of an operation share one limit.
// Thread safety: an immutable value.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline in(std::chrono::milliseconds limit) { return Deadline(limit); }
  static Deadline never() { return Deadline(std::chrono::milliseconds::max()); }

  bool passed(Clock::time_point now = Clock::now()) const { return now >= at_; }
  // Returns the time that is left. It is never negative, so it can be handed to a system call.
  std::chrono::nanoseconds left(Clock::time_point now = Clock::now()) const {
    return now >= at_ ? std::chrono::nanoseconds(0) : std::chrono::nanoseconds(at_ - now);
  }
  Clock::time_point at() const { return at_; }
  bool isNever() const { return limit_ == std::chrono::milliseconds::max(); }
  std::chrono::milliseconds limit() const { return limit_; }

 private:
  explicit Deadline(std::chrono::milliseconds limit)
      : limit_(limit), at_(Clock::now() + std::min(limit, kFarAway)) {}

  // Ten years exceed the life of any job, and can still be added to a time_point without overflow.
  static constexpr std::chrono::milliseconds kFarAway = std::chrono::hours(24 * 365 * 10);

  std::chrono::milliseconds limit_;
  Clock::time_point at_;
};

}  // namespace bluefog
