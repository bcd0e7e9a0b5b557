#include "bootstrap/mpi/Connections.hpp"

#include <dirent.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <sstream>
#include <vector>

namespace bluefog::mpi {
namespace {

// A silent host is given up after ten seconds. Without data under way by the kernel; with data by
// giveUpSilent(): TCP_USER_TIMEOUT would also give up one that acknowledges, but whose rank is
// stopped and takes nothing.
constexpr int kIdleSeconds = 4;
constexpr int kProbeSeconds = 2;
constexpr int kProbes = 3;
constexpr uint32_t kSilentMs = 10'000;

using GetName = int (*)(int, sockaddr*, socklen_t*);

// Of the one end of a socket, or of the other. None where it is not on a network.
std::optional<uint16_t> port(int fd, GetName getName) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getName(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return std::nullopt;
  }
  if (address.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  }
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  }
  return std::nullopt;
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

}  // namespace

std::set<uint16_t> Connections::listening() {
  std::set<uint16_t> ports;
  forEachDescriptor([&](int fd) {
    int listens = 0;
    socklen_t length = sizeof listens;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens != 0) {
      if (const std::optional<uint16_t> own = port(fd, ::getsockname)) {
        ports.insert(*own);
      }
    }
  });
  return ports;
}

std::string Connections::ports() const {
  std::ostringstream text;
  for (const uint16_t port : own_) {
    text << port << ' ';
  }
  return text.str();
}

void Connections::add(const std::string& ports) {
  std::istringstream text(ports);
  for (uint16_t port = 0; text >> port;) {
    theirs_.insert(port);
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
    tcp_info info{};
    socklen_t length = sizeof info;
    // What a stopped rank has no room for is not sent, and the questions for room are answered.
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
        (info.tcpi_unacked > 0 || info.tcpi_probes > 1) && info.tcpi_last_ack_recv > kSilentMs &&
        info.tcpi_last_data_sent > kSilentMs / 10) {
      ::shutdown(fd, SHUT_RDWR);
    }
  });
}

void Connections::forEach(const std::function<void(int fd)>& visit) const {
  forEachDescriptor([&](int fd) {
    const std::optional<uint16_t> there = port(fd, ::getpeername);
    const std::optional<uint16_t> here = port(fd, ::getsockname);
    if (there && here && (theirs_.count(*there) > 0 || own_.count(*here) > 0)) {
      visit(fd);
    }
  });
}

}  // namespace bluefog::mpi
