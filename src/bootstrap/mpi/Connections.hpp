#pragma once

#include <functional>
#include <set>
#include <string>

namespace bluefog::mpi {

// Connections finds the TCP connections that MPI has made in this process. These are the sockets
// with one end at a port on which MPI listens, in this process or in a peer. MPI owns the sockets.
// Thread safety: one thread at a time, except that endStrangers() may run beside the other
// functions.
class Connections {
 public:
  using Ports = std::set<std::string>;
  // Returns the ports on which this process listens.
  static Ports listening();

  // `own` are the ports on which MPI listens in this process.
  explicit Connections(Ports own) : own_(std::move(own)) {}

  // Returns the addresses on which MPI listens in this process, for peers to recognize its
  // connections.
  std::string endpoints() const;
  // Takes a peer's endpoints(). From then on the kernel gives up that peer's host some seconds
  // after it falls silent. A host is not silent while only the peer itself is stopped.
  void add(const std::string& endpoints);
  // Ends the connections whose host has not acknowledged sent data for a long time.
  void giveUpSilent() const;
  // Ends accepted connections whose other side has sent too few bytes for a second, since MPI waits
  // for the rest and for nothing else. It may be called during that wait.
  void endStrangers() const;
  // Closes the connections in a forked child. As long as the child kept them, peers would not see
  // the end of this process.
  void close() const;
  // Returns the bytes that were sent and not yet acknowledged by the other hosts' kernels.
  size_t underWay() const;

 private:
  void forEach(const std::function<void(int fd)>& visit) const;

  const Ports own_;
  std::set<std::string> theirs_;  // such as "10.0.0.1 1024"
};

}  // namespace bluefog::mpi
