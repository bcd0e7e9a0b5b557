#include "bootstrap/pmix/MessageSocket.hpp"

#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace bluefog::pmix {
namespace {

struct WireHeader {
  uint64_t size;
  MessageSocket::SocketKind kind;
};

}  // namespace

bool MessageSocket::sendAll(const void* data, size_t size) {
  const auto* from = static_cast<const std::byte*>(data);
  while (size > 0) {
    const ssize_t sent = ::send(socket_.get(), from, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) {
      continue;
    }
    if (sent <= 0) {
      return false;
    }
    from += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

bool MessageSocket::receiveAll(void* data, size_t size) {
  auto* to = static_cast<std::byte*>(data);
  while (size > 0) {
    const ssize_t received = ::recv(socket_.get(), to, size, 0);
    if (received < 0 && errno == EINTR) {
      continue;
    }
    if (received <= 0) {
      return false;
    }
    to += received;
    size -= static_cast<size_t>(received);
  }
  return true;
}

bool MessageSocket::send(SocketKind kind, const std::string& text) {
  WireHeader header{text.size(), kind};
  return sendAll(&header, sizeof header) && sendAll(text.data(), text.size());
}

std::optional<MessageSocket::SocketMessage> MessageSocket::receive() {
  WireHeader header{};
  if (!receiveAll(&header, sizeof header)) {
    return std::nullopt;
  }
  SocketMessage message{header.kind, std::string(header.size, '\0')};
  if (!receiveAll(message.text.data(), message.text.size())) {
    return std::nullopt;
  }
  return message;
}

void MessageSocket::setTimeout(std::chrono::nanoseconds timeout) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(timeout);
  // A time of 0 would mean no limit.
  const timeval limit{std::clamp<time_t>(seconds.count(), 1, INT_MAX), 0};
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

void MessageSocket::shutDown() {
  ::shutdown(socket_.get(), SHUT_RDWR);
}

}  // namespace bluefog::pmix
