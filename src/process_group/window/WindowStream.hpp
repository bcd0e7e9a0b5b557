#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>

#include "core/Worker.hpp"
#include "device/Device.hpp"
#include "process_group/device/StreamPoint.hpp"
#include "process_group/window/WindowLabel.hpp"

namespace bluefog {

// The order of calls of a window on a device: each comes after what the program has put into its
// current stream before, for which the host waits; in the caller's thread, or in one of its own.
class WindowStream {
 public:
  struct StreamContext {
    WindowLabel label;
    c10::Device device;
    std::shared_ptr<Device> memory;
    std::chrono::milliseconds timeout;
    // Called now and then by a waiting caller; throws what ends the wait.
    std::function<void(const char* op)> proceed;
  };
  explicit WindowStream(StreamContext context)
      : context_(std::move(context)), worker_(std::make_unique<Worker>()) {}
  ~WindowStream();

  // Until what the current stream and begin() have been given so far is done.
  void catchUp(const char* op);
  // Has `call` made when the current stream has done what it has been given so far. What that or
  // the wait throws, `fail` gets.
  void begin(const char* op, std::function<void()> call,
             std::function<void(std::exception_ptr)> fail);
  // Until that is done.
  void drain(const char* op);

 private:
  void checkCapture(const char* op) const;
  void await(const char* op, const StreamPoint& point, Deadline deadline,
             const std::function<void()>& proceed) const;
  [[noreturn]] void failLate(const char* op, const char* what) const;

  const StreamContext context_;
  const OwnProcess process_;
  std::atomic<bool> ends_{false};
  std::unique_ptr<Worker> worker_;
};

}  // namespace bluefog
