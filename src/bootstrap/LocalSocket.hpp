#pragma once

#include <sys/socket.h>

#include <string>

#include "core/Fd.hpp"

namespace bluefog {

// These functions handle the unix sockets by which ranks of one host call each other. The addresses
// are in the abstract namespace, which leaves nothing behind in a file system.
// Thread safety: any thread may call any function.
namespace local_socket {

enum class CallResult {
  kTaken,
  kBusy,  // the queue of callers is full, which shows that the process is alive
  kRefused
};

// Returns a socket that never blocks and keeps the bounds of messages.
Fd make();
// Returns a socket that listens at the address, with so many callers in its queue.
Fd listenAt(const std::string& name, int queue);
// Returns whether a call waits at a socket that listens.
bool hasCaller(const Fd& listener);
CallResult call(const Fd& socket, const std::string& name);
// Returns who is at the other end of a connected socket.
ucred peerOf(const Fd& socket);
// Returns whether the other end is closed, though something may be left to read.
bool hasEnded(const Fd& socket);
// Returns whether the peer runs for the same user as this process.
bool isSameUser(const ucred& peer);

}  // namespace local_socket

}  // namespace bluefog
