#include "bootstrap/Endpoint.hpp"

#include <sys/socket.h>

#include <utility>

#include "bootstrap/LocalSocket.hpp"

namespace bluefog {

Endpoint::Endpoint(std::string accelerator) : record_(describeThisRank(std::move(accelerator))) {
  if (!areUnixSocketsRefused()) {
    // Callers stay in the queue while this process does something else than to meet.
    callers_ = Callers(local_socket::listenAt(record_.name(), SOMAXCONN));
  }
}

Endpoint::~Endpoint() {
  if (!process_.isForked()) {
    close();
  }
}

}  // namespace bluefog
