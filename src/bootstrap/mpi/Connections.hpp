#pragma once

#include <functional>
#include <set>
#include <string>

namespace bluefog::mpi {

// The TCP connections that MPI has made in this process: those to or from where MPI listens, here
// or there.
class Connections {
 public:
  using Ports = std::set<std::string>;
  // On which this process listens.
  static Ports listening();

  // `own`: on which MPI listens here.
  explicit Connections(Ports own) : own_(std::move(own)) {}

  // Where MPI listens: for a peer, to know them by; and from one. Its host, when it falls silent,
  // is given up after some seconds by the kernel, which hears of its being there also while the
  // peer itself is stopped.
  std::string endpoints() const;
  void add(const std::string& endpoints);
  // Ends those whose host has not acknowledged for long what was sent to it.
  void giveUpSilent() const;
  // Ends those to here whose other side has not said enough for a second: MPI waits for the rest,
  // and for nothing else. May be called while it does.
  void endStrangers() const;
  // In a forked child: as long as it kept them, the peers would not see this process's end.
  void close() const;
  // Bytes that were sent and not yet received by the other hosts' kernels.
  size_t underWay() const;

 private:
  void forEach(const std::function<void(int fd)>& visit) const;

  const Ports own_;
  std::set<std::string> theirs_;  // "10.0.0.1 1024"
};

}  // namespace bluefog::mpi
