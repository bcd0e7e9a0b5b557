#pragma once

#include <sys/types.h>

#include <chrono>

#include "core/Fd.hpp"

namespace bluefog {

// Another process of this host, or none.
class Process {
 public:
  Process() = default;
  explicit Process(pid_t pid);

  // A zombie has ended: its parent may take its time.
  bool hasEnded() const;
  // Waits that long for it.
  bool endsIn(std::chrono::milliseconds time) const;
  // Becomes readable when the process ends. -1 where it has, and where the system has no such
  // descriptors (pidfd_open): then hasEnded() tells.
  int fd() const { return fd_.get(); }
  bool isNone() const { return pid_ <= 0; }
  // Without a descriptor where the process may have no more of them.
  Process duplicate() const;

 private:
  pid_t pid_ = 0;
  Fd fd_;
};

}  // namespace bluefog
