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

// A WindowStream puts the calls of a window on a device in order. Each call comes after what the
// program has put into its current stream before. The host waits for that, in the caller's thread
// or in a thread of the WindowStream's own, which it owns.
// Thread safety: any thread may call any method.
class WindowStream {
 public:
  struct StreamContext {
    WindowLabel label;
    c10::Device device;
    std::shared_ptr<Device> memory;
    std::chrono::milliseconds timeout;
    // Called now and then by a waiting caller. It throws to end the wait.
    std::function<void(const char* op)> proceed;
  };
  explicit WindowStream(StreamContext context)
      : context_(std::move(context)), worker_(std::make_unique<Worker>()) {}
  ~WindowStream();

  // Waits until everything is done that the current stream and begin() have been given so far.
  void catchUp(const char* op);
  // Makes `call` in the own thread, once the current stream has done what it has been given so far.
  // `fail` gets what the call, or the wait for it, throws.
  void begin(const char* op, std::function<void()> call,
             std::function<void(std::exception_ptr)> fail);
  // Waits until every call that was begun so far has returned.
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
