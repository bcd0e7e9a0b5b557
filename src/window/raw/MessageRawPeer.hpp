#pragma once

#include <memory>
#include <utility>

#include "window/peer/MessagePeerWindow.hpp"
#include "window/raw/RawPeer.hpp"

namespace bluefog {

// A MessageRawPeer reaches the part of a rank on another host, whose WindowServer does what this
// rank asks by messages, one after the other.
// Thread safety: any thread may call any method.
class MessageRawPeer final : public RawPeer {
 public:
  explicit MessageRawPeer(std::shared_ptr<WindowClient> client) : client_(std::move(client)) {}

  std::optional<PendingOp> put(uint64_t at, ConstSpan data,
                               const PeerWindow::Issue& issue) override {
    return client_->ask({.kind = WindowRequest::RequestKind::kWrite, .at = at}, data, issue);
  }
  std::optional<PendingOp> signal(const PeerWindow::Issue& issue) override {
    return client_->ask({.kind = WindowRequest::RequestKind::kSignal}, {}, issue);
  }

 private:
  const std::shared_ptr<WindowClient> client_;
};

}  // namespace bluefog
