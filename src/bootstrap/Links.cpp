#include "bootstrap/Links.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "core/Error.hpp"

namespace bluefog {
namespace {

// The sockets are SOCK_SEQPACKET, so each message is read as a whole. Its first byte says what kind
// of message it is.
constexpr char kFile = 'f';
constexpr char kGoodbye = 'b';
constexpr char kFailed = 'x';
constexpr char kWelcome = 'w';
constexpr size_t kMostMessage = 4096;

void send(const Fd& socket, const std::string& message) {
  // If the peer is gone, the message has no reader, and look() reports the departure.
  [[maybe_unused]] const ssize_t sent =
      ::send(socket.get(), message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

std::string failedMessage(const Reason& reason) {
  return (kFailed + reason.encode()).substr(0, kMostMessage);
}

}  // namespace

std::string Departure::describe(int global_rank) const {
  const std::string who = "rank " + std::to_string(global_rank) + " (pid " + std::to_string(pid) +
                          (host.empty() ? "" : " on " + host) + ") ";
  switch (how) {
    case How::kLeft:
      return who + "has left the group";
    case How::kGaveUp:
      return who + "gave up: " + reason.text;
    default:
      return who + (host.empty() ? "died" : "died, or its host cannot be reached");
  }
}

Links::Links(int size) : peers_(static_cast<size_t>(size)) {}

void Links::add(int rank, Fd socket, pid_t pid) {
  auto peer = std::make_unique<Peer>();
  peer->socket = std::move(socket);
  peer->process = Process(pid);
  peer->departure.rank = rank;
  peer->departure.pid = pid;
  peers_[static_cast<size_t>(rank)] = std::move(peer);
}

void Links::welcome(int rank) {
  Peer& peer = *peers_[static_cast<size_t>(rank)];
  peer.is_mutual = true;
  send(peer.socket, std::string(1, kWelcome));
}

std::vector<int> Links::sockets() const {
  std::vector<int> sockets;
  for (const auto& peer : peers_) {
    if (peer != nullptr && !peer->gone && peer->socket.valid()) {
      sockets.push_back(peer->socket.get());
    }
  }
  return sockets;
}

void Links::addElsewhere(int rank, pid_t pid, const std::string& host) {
  auto peer = std::make_unique<Peer>();
  peer->departure.rank = rank;
  peer->departure.pid = pid;
  peer->departure.host = host;
  peers_[static_cast<size_t>(rank)] = std::move(peer);
}

Process Links::processOf(int rank) const {
  return has(rank) ? peers_[static_cast<size_t>(rank)]->process.duplicate() : Process();
}

void Links::noteElsewhere(int rank, Departure::How how) {
  Peer& peer = *peers_[static_cast<size_t>(rank)];
  if (!peer.gone) {
    peer.departure.how = how;
    note(peer);
  }
}

const std::vector<Departure>& Links::look() {
  std::vector<pollfd> polled;
  std::vector<Peer*> owners;
  for (const auto& peer : peers_) {
    if (peer == nullptr || peer->gone) {
      continue;
    }
    for (const int fd : {peer->socket.get(), peer->process.fd()}) {
      if (fd >= 0) {
        polled.push_back({fd, POLLIN, 0});
        owners.push_back(peer.get());
      }
    }
    if (peer->process.fd() < 0 && !peer->process.isNone() && peer->process.hasEnded()) {
      read(*peer);
      note(*peer);
    }
  }
  if (polled.empty() || ::poll(polled.data(), polled.size(), 0) <= 0) {
    return departures_;
  }
  for (size_t i = 0; i < polled.size(); ++i) {
    Peer& peer = *owners[i];
    if (polled[i].revents == 0 || peer.gone) {
      continue;
    }
    const bool process_ended = polled[i].fd == peer.process.fd();
    // The peer may have sent its reason before it ended, so this is read first.
    const bool stream_ended = read(peer);
    if (process_ended || stream_ended) {
      note(peer);
    }
  }
  return departures_;
}

void Links::note(Peer& peer) {
  if (!peer.gone) {
    peer.gone = true;
    departures_.push_back(peer.departure);
  }
}

bool Links::read(Peer& peer) {
  while (true) {
    std::array<char, kMostMessage> data;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    iovec part{data.data(), data.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t length = ::recvmsg(peer.socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (length < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return false;
      }
      // ECONNRESET says that the peer closed its end before it had read everything. The data that
      // it sent is still there.
      if (errno == EINTR || errno == ECONNRESET) {
        continue;
      }
      return true;
    }
    if (length == 0) {
      return true;
    }
    if ((message.msg_flags & MSG_CTRUNC) != 0) {
      throw std::runtime_error(
          "no file descriptor is left for the group's memory; raise the limit (ulimit -n)");
    }
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
      peer.received_file = Fd(fd);
    }
    hear(peer, std::string(data.data(), static_cast<size_t>(length)));
  }
}

void Links::hear(Peer& peer, const std::string& message) {
  // A departure is noted now, because the peer's socket may stay open for long and carry no other
  // message.
  if (message[0] == kGoodbye) {
    peer.departure.how = Departure::How::kLeft;
    note(peer);
  } else if (message[0] == kWelcome) {
    peer.is_mutual = true;
  } else if (message[0] == kFailed) {
    peer.departure.how = Departure::How::kGaveUp;
    peer.departure.reason = Reason::decode(message.substr(1));
    note(peer);
  }
}

void Links::sendFile(int rank, const Fd& file) {
  char kind = kFile;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  iovec part{&kind, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = file.get();
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  // This fails only where the peer is gone, which look() reports.
  [[maybe_unused]] const ssize_t sent = ::sendmsg(peers_[static_cast<size_t>(rank)]->socket.get(),
                                                  &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

Fd Links::receiveFile(int rank) {
  Peer& peer = *peers_[static_cast<size_t>(rank)];
  if (read(peer)) {
    note(peer);
  }
  return std::move(peer.received_file);
}

void Links::sayToAll(const std::string& message) {
  for (const auto& peer : peers_) {
    if (peer != nullptr && !peer->gone && peer->socket.valid()) {
      send(peer->socket, message);
    }
  }
}

void Links::sayGoodbye() {
  sayToAll(std::string(1, kGoodbye));
}

void Links::sayFailed(const Reason& reason) {
  sayToAll(failedMessage(reason));
}

void Links::sayFailed(const Fd& socket, const Reason& reason) {
  send(socket, failedMessage(reason));
}

std::optional<Reason> Links::hearFailed(const Fd& socket) {
  std::array<char, kMostMessage> data;
  const ssize_t length = ::recv(socket.get(), data.data(), data.size(), MSG_DONTWAIT);
  if (length <= 0 || data[0] != kFailed) {
    return std::nullopt;
  }
  return Reason::decode(std::string(data.data() + 1, static_cast<size_t>(length) - 1));
}

}  // namespace bluefog
