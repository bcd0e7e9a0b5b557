#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "window/Window.hpp"
#include "window/peer/MessageBuffer.hpp"
#include "window/peer/PeerWindow.hpp"
#include "window/peer/WindowRequest.hpp"

namespace bluefog {

// How a window's part on another host is asked for something. What is under way keeps it.
class WindowClient : public std::enable_shared_from_this<WindowClient> {
 public:
  // `window`: its number, alike on all ranks. `dropped` is called for what was asked of a rank
  // that turns out to be dead, but for its mutex. `freed` is what it means that it has freed the
  // window.
  WindowClient(std::shared_ptr<Engine> engine, int peer, uint64_t window, std::string name,
               std::chrono::milliseconds timeout, Cause freed, std::function<void()> dropped);

  // Sends it with that many bytes behind it. `then`, if any, gets the answer, in the thread that
  // drives; it may throw Failure.
  using Then = std::function<void(const WindowReply&, const MessageBuffer&)>;
  PendingOp ask(WindowRequest request, ConstSpan data, const PeerWindow::Issue& issue,
                Then then = {});
  // Waits for it; throws its error.
  void await(const PendingOp& pending);
  Failure failure(Cause cause, const std::string& what) const;

 private:
  struct Talk;

  static Task hear(Mailbox& mailbox, const Op& op, int peer, std::shared_ptr<Talk> talk);
  Deadline deadlineOf(WindowRequest::RequestKind kind) const;
  void check(const WindowReply& answer) const;

  const std::shared_ptr<Engine> engine_;
  const int peer_;
  const uint64_t window_;
  const std::string name_;
  const std::chrono::milliseconds timeout_;
  const Cause freed_;
  const std::function<void()> dropped_;
  std::atomic<uint32_t> asked_{0};
};

class MessageMutex final : public SlotMutex {
 public:
  explicit MessageMutex(std::shared_ptr<WindowClient> client) : client_(std::move(client)) {}

  std::optional<int> take() override;
  void await(int holder, std::chrono::nanoseconds limit) override;
  void letGo() noexcept override;

 private:
  const std::shared_ptr<WindowClient> client_;
};

// Of a rank whose engine does what this one asks: one on another host, or whose device's memory
// this one cannot open.
class MessagePeerWindow final : public PeerWindow {
 public:
  MessagePeerWindow(std::shared_ptr<Window> own, int owner, std::shared_ptr<WindowClient> client)
      : own_(std::move(own)), owner_(owner), client_(std::move(client)), mutex_(client_) {}

  // The answer tells.
  bool isThere() const override { return true; }
  bool takesFromDevice() const override { return false; }
  PendingOp put(const SlotUpdate& what, Into into, const Issue& issue) override;
  PendingOp get(double weight, bool with_p, Engine::Who who) override;
  SlotMutex& mutex() override { return mutex_; }

 private:
  const std::shared_ptr<Window> own_;
  const int owner_;
  const std::shared_ptr<WindowClient> client_;
  MessageMutex mutex_;
};

}  // namespace bluefog
