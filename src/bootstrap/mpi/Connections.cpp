#include "bootstrap/mpi/Connections.hpp"

#include <dirent.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <optional>
#include <sstream>
#include <vector>

#include "bootstrap/mpi/interfaces.hpp"

namespace bluefog::mpi {
namespace {

// A silent host is given up after ten seconds. The kernel does so on idle connections, and
// giveUpSilent() on those with data in flight. TCP_USER_TIMEOUT would also give up a host that
// acknowledges, but whose rank is stopped and takes nothing.
constexpr int kIdleSeconds = 4;
constexpr int kProbeSeconds = 2;
constexpr int kProbes = 3;
constexpr uint32_t kSilentMs = 10'000;
// Each side of an MPI connection sends at least so many bytes as soon as it is connected.
constexpr uint64_t kGreeting = 24;

using GetName = int (*)(int, sockaddr*, socklen_t*);

struct SocketEnd {
  std::string address;
  std::string port;
};

// Returns the address of one end of a socket, or nothing where the socket is not on a network.
// `getName` (getsockname or getpeername) chooses the end.
std::optional<SocketEnd> endpoint(int fd, GetName getName) {
  sockaddr_storage raw{};
  socklen_t length = sizeof raw;
  auto* name = reinterpret_cast<sockaddr*>(&raw);
  std::array<char, NI_MAXHOST> address{};
  std::array<char, NI_MAXSERV> port{};
  if (getName(fd, name, &length) != 0 || (raw.ss_family != AF_INET && raw.ss_family != AF_INET6) ||
      ::getnameinfo(name, length, address.data(), address.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return std::nullopt;
  }
  return SocketEnd{address.data(), port.data()};
}

std::string textOf(const SocketEnd& endpoint) {
  return endpoint.address + ' ' + endpoint.port;
}

void forEachDescriptor(const std::function<void(int fd)>& visit) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
    if (entry->d_name[0] != '.') {
      visit(std::atoi(entry->d_name));
    }
  }
}

template <typename Value>
void set(int fd, int level, int option, Value value) {
  ::setsockopt(fd, level, option, &value, sizeof value);
}

void giveUpWhenSilent(int fd) {
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

size_t unacknowledged(int fd) {
  int bytes = 0;
  return ::ioctl(fd, SIOCOUTQ, &bytes) == 0 ? static_cast<size_t>(bytes) : 0;
}

// Returns what the kernel knows about the TCP socket `fd`.
std::optional<tcp_info> infoOf(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  return ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 ? std::optional(info)
                                                                      : std::nullopt;
}

}  // namespace

Connections::Ports Connections::listening() {
  Ports ports;
  forEachDescriptor([&](int fd) {
    int listens = 0;
    socklen_t length = sizeof listens;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens != 0) {
      if (const std::optional<SocketEnd> own = endpoint(fd, ::getsockname)) {
        ports.insert(own->port);
      }
    }
  });
  return ports;
}

std::string Connections::endpoints() const {
  std::string text;
  for (const std::string& address : interfaces::addresses()) {
    for (const std::string& port : own_) {
      text += textOf({address, port}) + '\n';
    }
  }
  return text;
}

void Connections::add(const std::string& endpoints) {
  std::istringstream text(endpoints);
  for (std::string endpoint; std::getline(text, endpoint);) {
    theirs_.insert(endpoint);
  }
  forEach(giveUpWhenSilent);
}

size_t Connections::underWay() const {
  size_t bytes = 0;
  forEach([&bytes](int fd) { bytes += unacknowledged(fd); });
  return bytes;
}

void Connections::close() const {
  std::vector<int> all;
  forEach([&all](int fd) { all.push_back(fd); });
  for (const int fd : all) {
    ::close(fd);
  }
}

void Connections::giveUpSilent() const {
  forEach([](int fd) {
    const std::optional<tcp_info> info = infoOf(fd);
    // Data for which a stopped rank has no space is not sent, and its kernel answers the probes for
    // space.
    if (info && (info->tcpi_unacked > 0 || info->tcpi_probes > 1) &&
        info->tcpi_last_ack_recv > kSilentMs && info->tcpi_last_data_sent > kSilentMs / 10) {
      ::shutdown(fd, SHUT_RDWR);
    }
  });
}

void Connections::endStrangers() const {
  forEachDescriptor([this](int fd) {
    const std::optional<SocketEnd> here = endpoint(fd, ::getsockname);
    const bool is_to_here = here && own_.contains(here->port) && endpoint(fd, ::getpeername);
    const std::optional<tcp_info> info = is_to_here ? infoOf(fd) : std::nullopt;
    if (info && info->tcpi_bytes_received > 0 && info->tcpi_bytes_received < kGreeting &&
        info->tcpi_last_data_recv > kSilentMs / 10) {
      ::shutdown(fd, SHUT_RDWR);
    }
  });
}

void Connections::forEach(const std::function<void(int fd)>& visit) const {
  forEachDescriptor([&](int fd) {
    const std::optional<SocketEnd> there = endpoint(fd, ::getpeername);
    const std::optional<SocketEnd> here = endpoint(fd, ::getsockname);
    if (there && here && (theirs_.contains(textOf(*there)) || own_.contains(here->port))) {
      visit(fd);
    }
  });
}

}  // namespace bluefog::mpi
