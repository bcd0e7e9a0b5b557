#include "bootstrap/Endpoint.hpp"

#include <sys/socket.h>

#include <utility>

#include "bootstrap/LocalSocket.hpp"

namespace bluefog {

Endpoint::Endpoint(std::string accelerator) : record_(describeThisRank(std::move(accelerator))) {
  if (!areUnixSocketsRefused()) {
    // Callers stay in the queue while this process does something else than to meet.
    listener_ = local_socket::listenAt(record_.name(), SOMAXCONN);
  }
}

}  // namespace bluefog
