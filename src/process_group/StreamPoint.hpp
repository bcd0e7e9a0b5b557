#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "core/Deadline.hpp"

namespace bluefog {

// What the current stream of a device has been given so far.
class StreamPoint {
 public:
  explicit StreamPoint(c10::Device device) {
    const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
    if (!stream.query()) {
      event_.emplace(device.type());
      event_->record(stream);
    }
  }

  // Until the device has done that. False when the deadline passed first; `proceed` may throw.
  bool await(Deadline deadline, const std::function<void()>& proceed) const {
    // A nap takes at least 50 us, in which a device copies 100 MiB.
    const auto first_nap = Deadline::Clock::now() + kWithoutNaps;
    std::chrono::nanoseconds nap{0};
    while (event_ && !event_->query()) {
      if (Deadline::Clock::now() < first_nap) {
        continue;
      }
      if (deadline.passed()) {
        return false;
      }
      proceed();
      std::this_thread::sleep_for(nap);
      nap = std::min<std::chrono::nanoseconds>(nap + kLonger, kLongestNap);
    }
    return true;
  }

 private:
  static constexpr std::chrono::nanoseconds kWithoutNaps = std::chrono::microseconds(50);
  static constexpr std::chrono::nanoseconds kLonger = std::chrono::microseconds(2);
  static constexpr std::chrono::nanoseconds kLongestNap = std::chrono::microseconds(200);

  std::optional<c10::Event> event_;  // none where all is done
};

}  // namespace bluefog
