#pragma once

#include <set>
#include <string>

#include "bootstrap/Callers.hpp"
#include "bootstrap/RankRecord.hpp"
#include "core/OwnProcess.hpp"

namespace bluefog {

// An Endpoint is where the ranks of this host can call this process as long as the object lives. It
// owns a socket that listens, and the record by which other processes find that socket. A group
// whose members change has one for its whole life.
// Thread safety: any thread may call any method. Only the thread that meets uses
// the callers and the ended epochs.
class Endpoint {
 public:
  // `accelerator` is as in RankRecord.
  explicit Endpoint(std::string accelerator);
  // Closes it, except in a forked child.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  const RankRecord& record() const { return record_; }
  // Returns the text from which another process learns the record.
  std::string handle() const { return record_.encode(); }
  // Returns those that have called. Nobody can call where the system refuses unix sockets.
  Callers& callers() { return callers_; }
  // Has callers refused from now on.
  void close() { callers_.close(); }

  // Remembers that this process has ended the epoch of that name, or has given it up.
  void noteEnded(const std::string& epoch) { ended_.insert(epoch); }
  bool hasEnded(const std::string& epoch) const { return ended_.contains(epoch); }

 private:
  const RankRecord record_;
  const OwnProcess process_;
  Callers callers_;
  std::set<std::string> ended_;
};

}  // namespace bluefog
