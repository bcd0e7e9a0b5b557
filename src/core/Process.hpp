#pragma once

#include <sys/types.h>

#include <chrono>

#include "core/Fd.hpp"

namespace bluefog {

// A Process refers to another process of this host, or to none. It owns the descriptor by which the
// end of that process is noticed.
// Thread safety: the const functions may be called from any thread.
class Process {
 public:
  Process() = default;
  explicit Process(pid_t pid);

  // Returns whether the process has ended. A zombie counts as ended, because its parent may take
  // long to reap it.
  bool hasEnded() const;
  // Waits up to `time` for the end of the process, and returns whether it has ended.
  bool endsIn(std::chrono::milliseconds time) const;
  // Returns a descriptor that becomes readable when the process ends. It is -1 where the process
  // had ended before, or the system has no pidfd_open(); then only hasEnded() tells.
  int fd() const { return fd_.get(); }
  bool isNone() const { return pid_ <= 0; }
  // Returns another reference to the same process. It lacks the descriptor where this process may
  // open no more files.
  Process duplicate() const;

 private:
  pid_t pid_ = 0;
  Fd fd_;
};

}  // namespace bluefog
