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

// A WindowClient sends requests to another rank's WindowServer about one window, and hears the
// answers. A request that is under way keeps the client.
// Thread safety: any thread may call any method.
class WindowClient : public std::enable_shared_from_this<WindowClient> {
 public:
  // `window` is the window's number, which is the same on all ranks. `name` stands in errors; it is
  // empty if the window has none. `freed` is the cause of the
  // failure when the peer has freed the window. `dropped` is called for each request that fails
  // because the peer is dead, except for requests about the mutex.
  WindowClient(std::shared_ptr<Engine> engine, int peer, uint64_t window, std::string name,
               std::chrono::milliseconds timeout, Cause freed, std::function<void()> dropped);

  // Sends the request followed by `data`, and returns the operation that ends with the answer.
  // `then`, if any, gets the answer in the thread that drives, and may throw Failure.
  using Then = std::function<void(const WindowReply&, const MessageBuffer&)>;
  PendingOp ask(WindowRequest request, ConstSpan data, const PeerWindow::Issue& issue,
                Then then = {});
  // Waits for a pending request, and throws its error.
  void await(const PendingOp& pending);
  // Returns a failure whose text says that the peer did, or has, `what`.
  Failure failure(Cause cause, const std::string& what) const;

 private:
  struct Talk;

  static Task hear(Mailbox& mailbox, const MessageOp& op, int peer, std::shared_ptr<Talk> talk);
  Deadline deadlineOf(WindowRequest::RequestKind kind, const PeerWindow::Issue& issue) const;
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

// A MessageMutex is a SlotMutex at a rank that is reached by messages.
// Thread safety: any thread may call any method.
class MessageMutex final : public SlotMutex {
 public:
  explicit MessageMutex(std::shared_ptr<WindowClient> client) : client_(std::move(client)) {}

  std::optional<int> take() override;
  void await(int holder, std::chrono::nanoseconds limit) override;
  void letGo() noexcept override;

 private:
  const std::shared_ptr<WindowClient> client_;
};

// A MessagePeerWindow reaches the window part of a rank that does what this rank asks by messages.
// That rank is on another host, or has a device whose memory this rank cannot open.
// Thread safety: any thread may call any method.
class MessagePeerWindow final : public PeerWindow {
 public:
  MessagePeerWindow(std::shared_ptr<Window> own, int owner, std::shared_ptr<WindowClient> client)
      : own_(std::move(own)), owner_(owner), client_(std::move(client)), mutex_(client_) {}

  // This cannot be known before the peer answers.
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
