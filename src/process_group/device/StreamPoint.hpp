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

// A StreamPoint stands for everything that a device's current stream had been given when the
// StreamPoint was made.
// Thread safety: one thread at a time, which need not be the one that made it.
class StreamPoint {
 public:
  explicit StreamPoint(c10::Device device) : event_(device.type()) {
    event_.record(streamOf(device));
  }

  // Returns whether the device's current stream has done everything that it was given so far. Only
  // a thread that has to wait for that anyway may ask. In CUDA's default mode of capture, asking
  // ends a capture that is under way in any thread.
  static bool isReached(c10::Device device) { return streamOf(device).query(); }

  // Waits until the device has done it. Returns false if the deadline passed first. Calls `proceed`
  // between looks, which may throw to end the wait.
  bool await(Deadline deadline, const std::function<void()>& proceed) const {
    // The first looks come without sleeps between them. A sleep takes at least 50 us, in which a
    // device copies 64 MiB.
    const auto first_pause = Deadline::Clock::now() + kWithoutPauses;
    std::chrono::nanoseconds pause{0};
    while (!event_.query()) {
      if (Deadline::Clock::now() >= first_pause) {
        if (deadline.passed()) {
          return false;
        }
        proceed();
        std::this_thread::sleep_for(pause);
        pause = std::min<std::chrono::nanoseconds>(pause + kLonger, kLongestPause);
      }
    }
    return true;
  }

 private:
  static constexpr std::chrono::nanoseconds kWithoutPauses = std::chrono::microseconds(50);
  static constexpr std::chrono::nanoseconds kLonger = std::chrono::microseconds(2);
  static constexpr std::chrono::nanoseconds kLongestPause = std::chrono::microseconds(200);

  static c10::Stream streamOf(c10::Device device) {
    return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  }

  c10::Event event_;
};

}  // namespace bluefog
