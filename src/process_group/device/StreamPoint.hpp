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
    event_.record(streamOf(device));
  }

  // Whether all of it is done. Only for a thread that may not go on before: in CUDA's default mode
  // of capture to ask ends a capture that is under way in any thread.
  static bool isReached(c10::Device device) { return streamOf(device).query(); }

  // Until the device has done that. False when the deadline passed first; `proceed` may throw.
  bool await(Deadline deadline, const std::function<void()>& proceed) const {
    // A nap takes at least 50 us, in which a device copies 64 MiB.
    const auto first_nap = Deadline::Clock::now() + kWithoutNaps;
    std::chrono::nanoseconds nap{0};
    while (!event_.query()) {
      if (Deadline::Clock::now() >= first_nap) {
        if (deadline.passed()) {
          return false;
        }
        proceed();
        std::this_thread::sleep_for(nap);
        nap = std::min<std::chrono::nanoseconds>(nap + kLonger, kLongestNap);
      }
    }
    return true;
  }

 private:
  static constexpr std::chrono::nanoseconds kWithoutNaps = std::chrono::microseconds(50);
  static constexpr std::chrono::nanoseconds kLonger = std::chrono::microseconds(2);
  static constexpr std::chrono::nanoseconds kLongestNap = std::chrono::microseconds(200);

  static c10::Stream streamOf(c10::Device device) {
    return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  }

  c10::Event event_;
};

}  // namespace bluefog
