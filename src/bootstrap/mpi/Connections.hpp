#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

namespace bluefog::mpi {

// The TCP connections that MPI has made in this process: those to or from a port on which MPI
// listens, here or there.
class Connections {
 public:
  // The ports on which this process listens.
  static std::set<uint16_t> listening();

  // `own`: the ports on which MPI listens here.
  explicit Connections(std::set<uint16_t> own) : own_(std::move(own)) {}

  // For a peer, to know them by; and from one. Its host, when it falls silent, is given up after
  // some seconds by the kernel, which hears of its being there also while the peer itself is
  // stopped.
  std::string ports() const;
  void add(const std::string& ports);
  // Ends those whose host has not acknowledged for long what was sent to it.
  void giveUpSilent() const;
  // In a forked child: as long as it kept them, the peers would not see this process's end.
  void close() const;
  // Bytes that were sent and not yet received by the other hosts' kernels.
  size_t underWay() const;

 private:
  void forEach(const std::function<void(int fd)>& visit) const;

  std::set<uint16_t> own_;
  std::set<uint16_t> theirs_;
};

}  // namespace bluefog::mpi
