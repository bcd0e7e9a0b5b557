#include "bootstrap/pmix/ServerProcess.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <stdexcept>
#include <utility>

#include "core/Error.hpp"

namespace bluefog::pmix {
namespace {

constexpr int kServersEnd = 3;

class FileActions {
 public:
  FileActions() { ::posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { ::posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

Fd tcpSocket() {
  return Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

// Returns the two ends of one connection over the loopback, or nothing where that fails.
std::optional<std::array<Fd, 2>> tcpPair() {
  const Fd listener = tcpSocket();
  Fd caller = tcpSocket();
  sockaddr_in here{};
  here.sin_family = AF_INET;
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr_in calling{};
  sockaddr_in called{};
  const auto address = [](sockaddr_in& of) { return reinterpret_cast<sockaddr*>(&of); };
  socklen_t length = sizeof here;
  if (::bind(listener.get(), address(here), length) != 0 || ::listen(listener.get(), 1) != 0 ||
      ::getsockname(listener.get(), address(here), &length) != 0 ||
      ::connect(caller.get(), address(here), length) != 0 ||
      ::getsockname(caller.get(), address(calling), &length) != 0) {
    return std::nullopt;
  }
  // Another process may have connected first.
  while (true) {
    Fd answered(::accept4(listener.get(), address(called), &length, SOCK_CLOEXEC));
    if (!answered.valid()) {
      return std::nullopt;
    }
    if (called.sin_port == calling.sin_port && called.sin_addr.s_addr == calling.sin_addr.s_addr) {
      return std::array<Fd, 2>{std::move(caller), std::move(answered)};
    }
  }
}

std::array<Fd, 2> connectedPair(const std::string& program) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0) {
    return {Fd(ends[0]), Fd(ends[1])};
  }
  // The connection goes over TCP where unix sockets are refused.
  if (std::optional<std::array<Fd, 2>> pair = tcpPair()) {
    return std::move(*pair);
  }
  throwErrno("making a socket to " + program);
}

// Starts the program with one end of a socket, and returns the other end.
Fd start(const std::string& program) {
  auto [own, servers] = connectedPair(program);
  // dup2() of a descriptor to itself would leave it to be closed on exec.
  if (servers.get() == kServersEnd) {
    servers = Fd(::fcntl(servers.get(), F_DUPFD_CLOEXEC, kServersEnd + 1));
  }
  FileActions actions;
  ::posix_spawn_file_actions_adddup2(actions.get(), servers.get(), kServersEnd);
  std::string name = "bluefog-pmixd";
  std::string argument = std::to_string(kServersEnd);
  std::array<char*, 3> arguments{name.data(), argument.data(), nullptr};
  pid_t pid = 0;
  const int failure =
      ::posix_spawn(&pid, program.c_str(), actions.get(), nullptr, arguments.data(), environ);
  if (failure != 0) {
    errno = failure;
    throwErrno("starting " + program);
  }
  // The process that was started ends at once, and its child goes on as the server.
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return std::move(own);
}

}  // namespace

ServerProcess::ServerProcess(const std::string& program, const Job& job, Deadline limit)
    : socket_(start(program)) {
  socket_.setTimeout(limit.left());
  socket_.send(MessageSocket::SocketKind::kJob, job.encode());
  while (environments_.size() < job.host().ranks.size()) {
    const auto message = socket_.receive();
    if (!message) {
      throw std::runtime_error(program + (limit.passed() ? " does not answer" : " died"));
    }
    if (message->kind != MessageSocket::SocketKind::kEnvironment) {
      throw std::runtime_error(program + ": " + message->text);
    }
    environments_.push_back(message->text);
  }
  socket_.setTimeout(Deadline::never().left());
}

ServerProcess::~ServerProcess() {
  socket_.shutDown();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void ServerProcess::serveFences(Swap swap) {
  thread_ = std::thread([this, swap = std::move(swap)] {
    while (const auto message = socket_.receive()) {
      if (message->kind != MessageSocket::SocketKind::kFence) {
        break;
      }
      try {
        socket_.send(MessageSocket::SocketKind::kFence, swap(message->text));
      } catch (const std::exception&) {
        break;  // A failed fence would make MPI_Init end the process, so none is reported.
      }
    }
  });
}

}  // namespace bluefog::pmix
