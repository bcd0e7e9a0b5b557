#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/engine/Engine.hpp"
#include "window/Window.hpp"
#include "window/memory/PeerLiveness.hpp"
#include "window/peer/MessageBuffer.hpp"
#include "window/peer/WindowRequest.hpp"

namespace bluefog {

// Does what ranks on other hosts, and those that cannot open its device's memory, ask of this
// rank's windows, while its program computes: in the thread that drives, one rank's requests one
// after the other.
class WindowServer : public std::enable_shared_from_this<WindowServer> {
 public:
  WindowServer(Engine& engine, std::shared_ptr<PeerLiveness> liveness);

  // To those ranks, from now on until the group ends.
  void open(const std::vector<int>& peers);
  void add(uint64_t number, Window& window);
  // When it returns nobody works on that window any more.
  void remove(uint64_t number);

 private:
  void await(int peer);
  void swapSpare(int peer, MessageBuffer& message);
  void receive(int peer, const Op& op, MessageBuffer& message);
  bool hasGone(int peer, const Op& op) const;
  void answer(int peer, int64_t tag, std::shared_ptr<MessageBuffer> message);
  // Does it. The answer, with what follows it.
  std::shared_ptr<MessageBuffer> serve(int peer, const WindowRequest& request,
                                       const MessageBuffer& message);
  std::shared_ptr<MessageBuffer> done(int peer, const WindowRequest& request,
                                      const MessageBuffer& message);

  Engine& engine_;  // has what this one posts, and lives as long as that
  const std::shared_ptr<PeerLiveness> liveness_;
  std::mutex mutex_;
  std::map<uint64_t, Window*> windows_;
  std::vector<MessageBuffer> spares_;  // by rank: of its last message
  std::vector<int> failures_;          // by rank: of its messages, in a row
};

}  // namespace bluefog
