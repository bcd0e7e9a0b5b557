#pragma once

#include <sys/types.h>

#include <functional>
#include <list>
#include <optional>
#include <utility>

#include "bootstrap/Hello.hpp"
#include "core/Fd.hpp"

namespace bluefog {

// A Caller is a process of this host that has called this one, and is not linked yet.
struct Caller {
  Fd socket;
  pid_t pid = 0;
  Hello hello = {};
};

// Callers receives the calls of other processes of this host, by a socket that listens, which it
// owns. It keeps those that wait for an answer.
// Thread safety: one thread at a time, except for close().
class Callers {
 public:
  // Returns whether the caller has been dealt with. Otherwise it is asked about again.
  using Answer = std::function<bool(Caller& caller)>;

  Callers() = default;  // Nobody can call.
  explicit Callers(Fd listener) : listener_(std::move(listener)) {}

  // Passes to `answer` those that have called and said hello. It never waits. Throws
  // std::runtime_error if a process calls while this one may open no more files.
  void answer(const Answer& answer);
  // Returns the socket that listens, or -1.
  int socket() const { return listener_.get(); }
  // Has callers refused from now on, also where a forked child has the socket, too.
  void close();

 private:
  // A Silent has called, and has not said hello yet.
  struct Silent {
    Fd socket;
    pid_t pid = 0;
  };

  std::optional<Silent> accept();
  // Reads what the process has said, if anything, and then passes it on. Returns whether it can be
  // forgotten here.
  bool hear(Silent& silent, const Answer& answer);

  Fd listener_;
  std::list<Silent> silent_;
  std::list<Caller> waiting_;
};

}  // namespace bluefog
