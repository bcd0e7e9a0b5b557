#pragma once

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/pmix/Job.hpp"
#include "bootstrap/pmix/MessageSocket.hpp"
#include "core/Deadline.hpp"

namespace bluefog::pmix {

// The program bluefog-pmixd, started by one rank of a host for all of them. It ends with the last
// of them, whatever becomes of this object.
class ServerProcess {
 public:
  // Swaps this host's blob for all hosts' in their order, or throws.
  using Swap = std::function<std::string(const std::string& blob)>;

  // Throws std::runtime_error where there is no such program, or it cannot serve, or does not
  // within the limit.
  ServerProcess(const std::string& program, const Job& job, Deadline limit);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // What the host's ranks need in their environments, in their order: NAME=value lines.
  const std::vector<std::string>& environments() const { return environments_; }
  // From now on, in a thread of its own, until this object goes.
  void serveFences(Swap swap);
  // Later fences fail. (Where this object goes before, they are never over.)
  void noteMpiIsUp() { socket_.send(MessageSocket::SocketKind::kMpiIsUp, ""); }

 private:
  MessageSocket socket_;
  std::vector<std::string> environments_;
  std::thread thread_;
};

}  // namespace bluefog::pmix
