#include "core/Process.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

namespace bluefog {
namespace {

bool isZombie(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const size_t state = text.rfind(')') + 2;  // follows the program's name in brackets
  return state < text.size() && text[state] == 'Z';
}

}  // namespace

Process::Process(pid_t pid) : pid_(pid), fd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {}

bool Process::hasEnded() const {
  if (fd_.valid()) {
    pollfd polled{fd_.get(), POLLIN, 0};
    return ::poll(&polled, 1, 0) > 0;
  }
  return (::kill(pid_, 0) != 0 && errno == ESRCH) || isZombie(pid_);
}

bool Process::endsIn(std::chrono::milliseconds time) const {
  constexpr std::chrono::milliseconds kStep{1};
  for (; !hasEnded(); time -= kStep) {
    if (time <= kStep) {
      return false;
    }
    std::this_thread::sleep_for(kStep);
  }
  return true;
}

Process Process::duplicate() const {
  Process other;
  other.pid_ = pid_;
  other.fd_ = fd_.duplicate();
  return other;
}

}  // namespace bluefog
