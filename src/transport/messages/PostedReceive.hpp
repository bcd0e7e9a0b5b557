#pragma once

#include <memory>
#include <utility>

#include "transport/messages/ReceiveState.hpp"

namespace bluefog {

class ReceiveProtocol;

// A PostedReceive is a receive that a task has posted. Where it is destroyed before its message was
// complete, the message is abandoned: what comes of it is thrown away, and its sender is told. It
// shares the message with the lane, and refers to the protocol, which must outlive it. Receives and
// sends with equal match keys are posted in the order of the calls: that decides what matches what.
//
// Thread safety: only the thread that drives the engine may use it.
class PostedReceive {
 public:
  PostedReceive(ReceiveProtocol& protocol, std::shared_ptr<ReceiveState> receive)
      : protocol_(&protocol), receive_(std::move(receive)) {}
  PostedReceive(PostedReceive&& other) noexcept = default;
  ~PostedReceive() {
    if (receive_) {
      abandon();
    }
  }

  ReceiveState& operator*() const { return *receive_; }
  ReceiveState* operator->() const { return receive_.get(); }

 private:
  void abandon();

  ReceiveProtocol* protocol_;
  std::shared_ptr<ReceiveState> receive_;
};

}  // namespace bluefog
