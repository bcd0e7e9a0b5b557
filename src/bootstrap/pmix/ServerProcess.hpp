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

// A ServerProcess is the program bluefog-pmixd, which one rank of a host starts for all ranks of
// that host. The program ends with the last of them, whatever becomes of this object.
// Thread safety: one thread at a time; a thread of its own serves the fences.
class ServerProcess {
 public:
  // Takes this host's blob and returns all hosts' blobs in the order of the hosts, or throws.
  using Swap = std::function<std::string(const std::string& blob)>;

  // Throws std::runtime_error where the program does not exist, cannot serve, or does not do so
  // within the limit.
  ServerProcess(const std::string& program, const Job& job, Deadline limit);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // Returns the environments of the host's ranks, in the order of the ranks. Each has NAME=value
  // lines.
  const std::vector<std::string>& environments() const { return environments_; }
  // Answers the fences by `swap` from now on, in a thread of its own, until this object is
  // destroyed.
  void serveFences(Swap swap);
  // Tells the server that MPI has started in all ranks of this host, after which fences fail. If
  // this object is destroyed before that, a fence never ends.
  void noteMpiIsUp() { socket_.send(MessageSocket::SocketKind::kMpiIsUp, ""); }

 private:
  MessageSocket socket_;
  std::vector<std::string> environments_;
  std::thread thread_;
};

}  // namespace bluefog::pmix
