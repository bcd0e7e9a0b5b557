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
#include "window/raw/RawPart.hpp"

namespace bluefog {

// A WindowServer does what other ranks ask of this rank's windows by messages, while this rank's
// program computes. These are ranks on other hosts, and ranks that cannot open the memory of this
// rank's device. It does the work in the engine's driving thread, the requests of one rank one
// after the other. The operations that it posts keep it, and the engine must live as long as they
// do.
// Thread safety: any thread may call any method.
class WindowServer : public std::enable_shared_from_this<WindowServer> {
 public:
  WindowServer(Engine& engine, std::shared_ptr<PeerLiveness> liveness);

  // Serves these ranks from now on, until the group ends.
  void open(const std::vector<int>& peers);
  // These serve requests about a window, which must live until remove().
  void add(uint64_t number, Window& window);
  void add(uint64_t number, RawPart& part);
  // Stops serving a window. No thread of the server uses it when this returns.
  void remove(uint64_t number);

 private:
  void await(int peer);
  void swapSpare(int peer, MessageBuffer& message);
  void receive(int peer, const Op& op, MessageBuffer& message);
  bool hasGone(int peer, const Op& op) const;
  void answer(int peer, int64_t tag, std::shared_ptr<MessageBuffer> message);
  // Does what is asked, and returns the reply with what follows it. Does not throw if memory or the
  // device fails, but says so in the reply.
  std::shared_ptr<MessageBuffer> serve(int peer, const WindowRequest& request,
                                       const MessageBuffer& message);
  std::shared_ptr<MessageBuffer> perform(int peer, const WindowRequest& request,
                                         const MessageBuffer& message);
  WindowReply performRaw(int peer, const WindowRequest& request, const MessageBuffer& message);

  Engine& engine_;  // holds what this server posts, and lives as long
  const std::shared_ptr<PeerLiveness> liveness_;
  std::mutex mutex_;
  std::map<uint64_t, Window*> windows_;
  std::map<uint64_t, RawPart*> raw_parts_;
  std::vector<MessageBuffer> spares_;  // buffers of the last messages, by rank
  std::vector<int> failures_;          // failed messages in a row, by rank
};

}  // namespace bluefog
