#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "core/Fd.hpp"

namespace bluefog::pmix {

// A MessageSocket carries whole messages of any length over a stream socket, which it owns. It
// connects a rank and the PMIx server that the rank has started.
// Thread safety: one thread may send while another receives; any thread may call shutDown().
class MessageSocket {
 public:
  enum class SocketKind : char {
    kJob = 'j',          // Job::encode()
    kEnvironment = 'e',  // the environment of one rank, a variable a line
    kFailed = 'x',       // the reason why there is no server
    kFence = 'f',        // the blob of this host, or those of all hosts
    kMpiIsUp = 'u',      // all ranks of this host have started MPI
  };
  struct SocketMessage {
    SocketKind kind;
    std::string text;
  };

  explicit MessageSocket(Fd socket) : socket_(std::move(socket)) {}

  // Returns false where the other side is gone.
  bool send(SocketKind kind, const std::string& text);
  // Waits for a message. Returns nothing where the other side is gone, or has sent nothing for as
  // long as setTimeout() allows.
  std::optional<SocketMessage> receive();
  // Limits the wait of receive(), in whole seconds, rounded up.
  void setTimeout(std::chrono::nanoseconds timeout);
  // Ends a receive() in another thread.
  void shutDown();
  int fd() const { return socket_.get(); }

 private:
  bool sendAll(const void* data, size_t size);
  bool receiveAll(void* data, size_t size);

  Fd socket_;
};

}  // namespace bluefog::pmix
