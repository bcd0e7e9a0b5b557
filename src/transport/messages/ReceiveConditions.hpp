#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "transport/messages/MailboxState.hpp"
#include "transport/messages/PostedReceive.hpp"
#include "transport/messages/ReceiveState.hpp"
#include "transport/operations/Task.hpp"

namespace bluefog {

// The conditions in this file are what tasks await that receive messages. They refer to the
// messages and to the mailbox's state, which must outlive them.
//
// Thread safety: only the thread that drives the engine may use them.

// A StageReached is fulfilled when all of its messages have reached a stage, or a later one.
class StageReached final : public Awaitable {
 public:
  StageReached(const MailboxState& state, std::vector<const ReceiveState*> messages,
               ReceiveState::Stage stage)
      : state_(state), messages_(std::move(messages)), stage_(stage) {}
  bool ready() override;
  bool sleeps() const override { return true; }
  std::vector<int> missing() const override;
  std::optional<Failure> brokenOff() const override;
  bool anyWillDo() const override;
  void await_resume() {}

 private:
  const MailboxState& state_;
  std::vector<const ReceiveState*> messages_;
  ReceiveState::Stage stage_;
};

// A NextFrames is fulfilled when the next frame of each of the accepted messages is at the head of
// its lane.
class NextFrames final : public Awaitable {
 public:
  NextFrames(MailboxState& state, const std::vector<PostedReceive>& messages)
      : state_(state), messages_(messages) {}
  bool ready() override { return missing().empty(); }
  std::vector<int> missing() const override;
  std::optional<Failure> brokenOff() const override;
  void await_resume() {}

 private:
  bool hasCome(const ReceiveState& message) const;

  MailboxState& state_;
  const std::vector<PostedReceive>& messages_;
};

// A ControlFlushed is fulfilled when the senders of the messages can see all control messages of
// this rank. A rank that leaves sends no more of them.
class ControlFlushed final : public Awaitable {
 public:
  ControlFlushed(const MailboxState& state, const std::vector<PostedReceive>& messages)
      : state_(state), messages_(messages) {}
  bool ready() override { return missing().empty(); }
  std::vector<int> missing() const override;
  void await_resume() {}

 private:
  const MailboxState& state_;
  const std::vector<PostedReceive>& messages_;
};

// An InterleaveLock is fulfilled when no other operation takes frames of several lanes in step. Two
// at a time could each wait for frames that lie behind the other's. It results in an owner that
// holds the lock until it is destroyed.
class InterleaveLock final : public Awaitable {
 public:
  explicit InterleaveLock(bool& is_held) : is_held_(is_held) {}
  bool ready() override { return !is_held_; }
  std::vector<int> missing() const override { return {}; }
  [[nodiscard]] auto await_resume() {
    struct Release {
      void operator()(bool* is_held) const { *is_held = false; }
    };
    is_held_ = true;
    return std::unique_ptr<bool, Release>(&is_held_);
  }

 private:
  bool& is_held_;
};

}  // namespace bluefog
