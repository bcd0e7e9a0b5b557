#pragma once

#include <sys/types.h>

#include <list>
#include <set>
#include <string>

#include "bootstrap/RankRecord.hpp"
#include "core/Fd.hpp"
#include "core/OwnProcess.hpp"

namespace bluefog {

// A Caller is a process of this host that has called this one, and is not linked yet.
struct Caller {
  Fd socket;
  pid_t pid = 0;
  std::string hello = {};  // what it has said; empty until then
};

// An Endpoint is where the ranks of this host can call this process as long as the object lives. It
// owns a socket that listens, and the record by which other processes find that socket. A group
// whose members change has one for its whole life.
// Thread safety: any thread may call any method. The thread that meets owns `early` and `past`.
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
  // Has callers refused from now on, also where a forked child has the socket, too.
  void close();
  // Returns another descriptor of the listening socket. It is not valid where the system refuses
  // unix sockets. Throws std::runtime_error if the process may open no more files.
  Fd listener() const;

  std::list<Caller> early;     // callers whose epoch has not begun in this process
  std::set<std::string> past;  // names of the epochs that this process has ended, or given up

 private:
  const RankRecord record_;
  const OwnProcess process_;
  Fd listener_;
};

}  // namespace bluefog
