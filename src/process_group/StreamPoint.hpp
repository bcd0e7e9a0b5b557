#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "core/Deadline.hpp"

namespace bluefog {

// What the current stream of a device has been given so far.
class StreamPoint {
 public:
  explicit StreamPoint(c10::Device device) : event_(device.type()) {
    event_.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }

  // Until the device has done that. False when the deadline passed first; `proceed` may throw.
  bool await(Deadline deadline, const std::function<void()>& proceed) const {
    std::chrono::nanoseconds nap{0};
    while (!event_.query()) {
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
  static constexpr std::chrono::nanoseconds kLonger = std::chrono::microseconds(2);
  static constexpr std::chrono::nanoseconds kLongestNap = std::chrono::microseconds(200);

  c10::Event event_;
};

}  // namespace bluefog
