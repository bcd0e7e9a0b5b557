#include "bootstrap/mpi/interfaces.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "bootstrap/RankRecord.hpp"
#include "core/Fd.hpp"

namespace bluefog::mpi::interfaces {
namespace {

struct Interface {
  std::string name;
  std::string address;  // the bytes, in network order
  bool leads_elsewhere;
};

std::string bytesOf(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
    return {reinterpret_cast<const char*>(&in), sizeof in};
  }
  const auto& in = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return {reinterpret_cast<const char*>(&in), sizeof in};
}

// Returns one Interface for each address of this host.
std::vector<Interface> all() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) {
    return {};
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> freed(first, ::freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    const bool has_address = each->ifa_addr != nullptr && (each->ifa_addr->sa_family == AF_INET ||
                                                           each->ifa_addr->sa_family == AF_INET6);
    if (has_address) {
      const bool leads_elsewhere = (each->ifa_flags & IFF_LOOPBACK) == 0;
      found.push_back({each->ifa_name, bytesOf(each->ifa_addr), leads_elsewhere});
    }
  }
  return found;
}

// Returns the address from which this host would send to `to`. Nothing is sent.
std::optional<std::string> sourceFor(const addrinfo& to) {
  const Fd socket(::socket(to.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage from{};
  socklen_t length = sizeof from;
  if (!socket.valid() || ::connect(socket.get(), to.ai_addr, to.ai_addrlen) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&from), &length) != 0) {
    return std::nullopt;
  }
  return bytesOf(reinterpret_cast<const sockaddr*>(&from));
}

bool isIn(const std::string& address, const std::string& network, size_t bits) {
  for (size_t bit = 0; bit < bits; ++bit) {
    const int mask = 0x80 >> (bit % 8);
    if (((address[bit / 8] ^ network[bit / 8]) & mask) != 0) {
      return false;
    }
  }
  return true;
}

bool names(const std::string& item, const Interface& interface) {
  const size_t slash = item.find('/');
  in_addr network{};
  if (slash == std::string::npos || ::inet_aton(item.substr(0, slash).c_str(), &network) == 0) {
    return item == interface.name;
  }
  const std::string bytes(reinterpret_cast<const char*>(&network), sizeof network);
  const int bits = std::atoi(item.c_str() + slash + 1);
  return interface.address.size() == bytes.size() && bits >= 0 && bits <= 32 &&
         isIn(interface.address, bytes, static_cast<size_t>(bits));
}

// Returns whether MPI may use the interface. Ranks of one host that use MPI all the same meet over
// the loopback.
bool mayBeUsed(const Interface& interface) {
  return interface.leads_elsewhere || sharesNoMemory();
}

}  // namespace

std::optional<std::string> toward(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* first = nullptr;
  if (host.empty() || ::getaddrinfo(host.c_str(), "9", &hints, &first) != 0) {
    return std::nullopt;
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> freed(first, ::freeaddrinfo);
  const std::vector<Interface> own = all();
  for (const addrinfo* each = first; each != nullptr; each = each->ai_next) {
    const std::optional<std::string> source = sourceFor(*each);
    for (const Interface& interface : own) {
      if (source == interface.address && interface.leads_elsewhere) {
        return interface.name;
      }
    }
  }
  return std::nullopt;
}

std::vector<std::string> addresses() {
  std::vector<std::string> texts;
  for (const Interface& interface : all()) {
    if (!mayBeUsed(interface)) {
      continue;
    }
    std::array<char, INET6_ADDRSTRLEN> text{};
    const int family = interface.address.size() == sizeof(in_addr) ? AF_INET : AF_INET6;
    ::inet_ntop(family, interface.address.data(), text.data(), text.size());
    texts.emplace_back(text.data());
  }
  return texts;
}

void requireAny(const std::string& list) {
  const std::vector<Interface> own = all();
  std::istringstream items(list);
  for (std::string item; std::getline(items, item, ',');) {
    for (const Interface& interface : own) {
      if (names(item, interface) && mayBeUsed(interface)) {
        return;
      }
    }
  }
  std::set<std::string> known;
  for (const Interface& interface : own) {
    known.insert(interface.name);
  }
  std::string text;
  for (const std::string& name : known) {
    text += (text.empty() ? "" : ", ") + name;
  }
  throw std::runtime_error("OMPI_MCA_btl_tcp_if_include=" + list +
                           " names no network interface of this host" +
                           (sharesNoMemory() ? "" : " that leads to others") + "; it has " + text);
}

}  // namespace bluefog::mpi::interfaces
