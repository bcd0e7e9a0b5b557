#include "bootstrap/Endpoint.hpp"

#include <sys/socket.h>

#include <stdexcept>
#include <utility>

#include "bootstrap/LocalSocket.hpp"

namespace bluefog {

Endpoint::Endpoint(std::string accelerator) : record_(describeThisRank(std::move(accelerator))) {
  if (!areUnixSocketsRefused()) {
    // Callers stay in the queue while this process does something else than to meet.
    listener_ = local_socket::listenAt(record_.name(), SOMAXCONN);
  }
}

Endpoint::~Endpoint() {
  if (!process_.isForked()) {
    close();
  }
}

void Endpoint::close() {
  if (listener_.valid()) {
    ::shutdown(listener_.get(), SHUT_RDWR);
  }
}

Fd Endpoint::listener() const {
  Fd listener = listener_.duplicate();
  if (listener_.valid() && !listener.valid()) {
    throw std::runtime_error(
        "no file descriptor is left to listen for other ranks; raise the limit (ulimit -n)");
  }
  return listener;
}

}  // namespace bluefog
