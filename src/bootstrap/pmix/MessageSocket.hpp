#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "core/Fd.hpp"

namespace bluefog::pmix {

// Whole messages of any length over a stream socket, between a rank and the server it has started.
// One thread may send while another receives.
class MessageSocket {
 public:
  enum class SocketKind : char {
    kJob = 'j',          // Job::encode()
    kEnvironment = 'e',  // of one rank, a variable a line
    kFailed = 'x',       // why there is no server
    kFence = 'f',        // this host's blob, or all hosts'
    kMpiIsUp = 'u',      // in all ranks of this host
  };
  struct SocketMessage {
    SocketKind kind;
    std::string text;
  };

  explicit MessageSocket(Fd socket) : socket_(std::move(socket)) {}

  // False where the other side is gone.
  bool send(SocketKind kind, const std::string& text);
  // Waits; nothing where the other side is gone, or has sent nothing for as long as its patience.
  std::optional<SocketMessage> receive();
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
