#include "bootstrap/LocalSocket.hpp"

#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "core/Error.hpp"

namespace bluefog::local_socket {
namespace {

struct Address {
  sockaddr_un address{};
  socklen_t length = 0;

  explicit Address(const std::string& name) {
    address.sun_family = AF_UNIX;
    // A leading zero byte selects the abstract namespace.
    std::memcpy(address.sun_path + 1, name.data(), std::min(name.size(), size_t{100}));
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

}  // namespace

Fd make() {
  Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) {
    throwErrno("opening a unix socket to a rank on this host");
  }
  return fd;
}

Fd listenAt(const std::string& name, int queue) {
  Fd socket = make();
  const Address address(name);
  if (::bind(socket.get(), address.get(), address.length) != 0 ||
      ::listen(socket.get(), queue) != 0) {
    throwErrno("listening for the ranks on this host");
  }
  return socket;
}

bool hasCaller(const Fd& listener) {
  pollfd polled{listener.get(), POLLIN, 0};
  return ::poll(&polled, 1, 0) > 0 && (polled.revents & POLLIN) != 0;
}

CallResult call(const Fd& socket, const std::string& name) {
  const Address address(name);
  if (::connect(socket.get(), address.get(), address.length) == 0) {
    return CallResult::kTaken;
  }
  if (errno == EPERM || errno == EACCES) {
    throwErrno("calling a rank on this host by its abstract unix socket");
  }
  return errno == ECONNREFUSED ? CallResult::kRefused : CallResult::kBusy;
}

ucred peerOf(const Fd& socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    throwErrno("asking who is at the other end of a unix socket");
  }
  return peer;
}

bool hasEnded(const Fd& socket) {
  pollfd polled{socket.get(), 0, 0};
  return ::poll(&polled, 1, 0) > 0 && (polled.revents & (POLLHUP | POLLERR)) != 0;
}

bool isSameUser(const ucred& peer) {
  return peer.uid == ::geteuid();
}

}  // namespace bluefog::local_socket
