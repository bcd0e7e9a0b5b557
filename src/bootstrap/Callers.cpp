#include "bootstrap/Callers.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <stdexcept>
#include <string>

#include "bootstrap/LocalSocket.hpp"

namespace bluefog {

void Callers::answer(const Answer& answer) {
  // An answer that throws has taken its caller's socket.
  waiting_.remove_if([&](Caller& caller) { return !caller.socket.valid() || answer(caller); });
  silent_.remove_if([&](Silent& silent) { return hear(silent, answer); });
  // Many may call at once, so each is dealt with before the next one takes a file descriptor.
  while (std::optional<Silent> silent = accept()) {
    if (!hear(*silent, answer)) {
      silent_.push_back(std::move(*silent));
    }
  }
}

std::optional<Callers::Silent> Callers::accept() {
  // Where no file descriptor is left, accept4() fails before it looks for a caller.
  while (local_socket::hasCaller(listener_)) {
    Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      if (errno == EMFILE || errno == ENFILE) {
        throw std::runtime_error(
            "no file descriptor is left to answer other ranks; raise the limit (ulimit -n)");
      }
      break;
    }
    const ucred peer = local_socket::peerOf(socket);
    if (local_socket::isSameUser(peer)) {
      return Silent{std::move(socket), peer.pid};
    }
  }
  return std::nullopt;
}

bool Callers::hear(Silent& silent, const Answer& answer) {
  std::array<char, 512> said;
  const ssize_t length = ::recv(silent.socket.get(), said.data(), said.size(), 0);
  if (length <= 0) {
    return length == 0 || (errno != EAGAIN && errno != EINTR);
  }
  const std::optional<Hello> hello =
      Hello::decode(std::string(said.data(), static_cast<size_t>(length)));
  if (hello) {
    Caller caller{std::move(silent.socket), silent.pid, *hello};
    if (!answer(caller)) {
      waiting_.push_back(std::move(caller));
    }
  }
  return true;
}

void Callers::close() {
  if (listener_.valid()) {
    ::shutdown(listener_.get(), SHUT_RDWR);
  }
}

}  // namespace bluefog
