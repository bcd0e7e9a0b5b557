#include "bootstrap/Rendezvous.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <thread>

#include "core/Error.hpp"

namespace bluefog {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLongestPause{10};
constexpr milliseconds kProbeEvery{100};
// A refused call whose process lives: it gave up, and somebody who knows why will tell; so long.
constexpr int kMostRefusals = 5;

struct Address {
  sockaddr_un address{};
  socklen_t length = 0;

  explicit Address(const std::string& name) {
    address.sun_family = AF_UNIX;
    // A leading zero byte: the abstract namespace, where nothing is left in a file system.
    std::memcpy(address.sun_path + 1, name.data(), std::min(name.size(), size_t{100}));
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

Fd unixSocket() {
  Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) {
    throwErrno("opening a unix socket to a rank on this host");
  }
  return fd;
}

ucred credentials(const Fd& socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    throwErrno("asking who is at the other end of a unix socket");
  }
  return peer;
}

// A zombie is dead: its parent may take its time.
bool isAlive(pid_t pid) {
  const Fd process = openProcess(pid);
  pollfd polled{process.get(), POLLIN, 0};
  return process.valid() && ::poll(&polled, 1, 0) == 0;
}

bool isMine(const ucred& peer) {
  return peer.uid == ::geteuid();
}

}  // namespace

Rendezvous::Rendezvous(Records& records, int rank, std::vector<int> global_ranks, Deadline deadline,
                       std::function<void()> interrupt)
    : published_(records),
      rank_(rank),
      global_ranks_(std::move(global_ranks)),
      deadline_(deadline),
      interrupt_(std::move(interrupt)),
      me_(describeThisRank()),
      records_(global_ranks_.size()),
      links_(size()),
      next_probe_(Deadline::in(kProbeEvery)) {}

void Rendezvous::meet() {
  if (size() == 1) {
    return;
  }
  listen();
  publish();
  while (true) {
    learn();
    std::erase_if(to_call_, [this](int rank) { return call(rank) != Answer::kBusy; });
    answerCalls();
    watch();
    bool complete = true;
    for (int rank = 0; rank < size(); ++rank) {
      complete = complete && (rank == rank_ || links_.has(rank));
    }
    if (complete) {
      return;
    }
    if (deadline_.passed()) {
      giveUpOnTime();
    }
    probeUnlinked();
    pause();
  }
}

void Rendezvous::listen() {
  listener_ = unixSocket();
  const Address address(me_.socket);
  if (::bind(listener_.get(), address.get(), address.length) != 0 ||
      ::listen(listener_.get(), size()) != 0) {
    throwErrno("listening for the ranks on this host");
  }
}

void Rendezvous::publish() {
  const std::optional<std::string> earlier = published_.look(rank_);
  published_.publish(me_.encode());  // so that the earlier one hears of it, too
  rejectTwin(earlier);
}

void Rendezvous::rejectTwin(const std::optional<std::string>& found) {
  if (!found || *found == me_.encode()) {
    return;
  }
  const RankRecord twin = decode(rank_, *found);
  const bool is_stale = twin.place == me_.place && (twin.pid == me_.pid || !isAlive(twin.pid));
  if (is_stale) {
    return;  // of an attempt that failed
  }
  const auto describe = [](const RankRecord& record) {
    return "pid " + std::to_string(record.pid) + " on " + record.host;
  };
  const std::string rank = std::to_string(global(rank_));
  giveUp(Cause::kMismatch, {global(rank_)},
         "two processes say that they are rank " + rank + " (" + describe(me_) + ", " +
             describe(twin) + "); give each a RANK of its own");
}

void Rendezvous::learn() {
  for (int rank = 0; rank < size(); ++rank) {
    auto& record = records_[static_cast<size_t>(rank)];
    if (rank == rank_ || record) {
      continue;
    }
    std::optional<std::string> text;
    try {
      text = published_.look(rank);
    } catch (...) {
      // The store may have died with the rank that held it: then name that rank.
      for (int tries = 0; tries < 20; ++tries) {
        watch();
        std::this_thread::sleep_for(kLongestPause);
      }
      throw;
    }
    if (!text) {
      continue;
    }
    record = decode(rank, *text);
    checkPlace(rank);
    if (rank < rank_) {
      to_call_.push_back(rank);
    }
  }
}

RankRecord Rendezvous::decode(int rank, const std::string& text) {
  try {
    return RankRecord::decode(text);
  } catch (const std::exception&) {
    giveUp(Cause::kMismatch, {global(rank)},
           "the store holds something else than a record of rank " + std::to_string(global(rank)) +
               "; does another program use its keys?");
  }
}

void Rendezvous::checkPlace(int rank) {
  const RankRecord& other = *records_[static_cast<size_t>(rank)];
  const std::string who = "rank " + std::to_string(global(rank));
  const std::string here = "rank " + std::to_string(global(rank_));
  if (other.version != me_.version) {
    giveUp(Cause::kMismatch, {global(rank)},
           who + " runs bluefog_pg " + other.version + ", " + here + " runs " + me_.version +
               "; install one version everywhere");
  }
  if (other.place != me_.place) {
    giveUp(Cause::kPeerFailed, {global(rank)},
           who + " (on " + other.host + ") cannot share memory with " + here + " (on " + me_.host +
               "): another host or network namespace; groups across hosts are not supported yet");
  }
}

Rendezvous::Answer Rendezvous::connect(const Fd& socket, int rank) const {
  const Address address(records_[static_cast<size_t>(rank)]->socket);
  if (::connect(socket.get(), address.get(), address.length) == 0) {
    return Answer::kTaken;
  }
  return errno == EAGAIN ? Answer::kBusy : Answer::kRefused;
}

Rendezvous::Answer Rendezvous::call(int rank) {
  Fd socket = unixSocket();
  const Answer answer = connect(socket, rank);
  if (answer == Answer::kRefused) {
    next_probe_ = Deadline::in(milliseconds(0));  // finds out why
  }
  if (answer != Answer::kTaken) {
    return answer;
  }
  const ucred peer = credentials(socket);
  if (!isMine(peer)) {
    giveUp(Cause::kPeerFailed, {global(rank)},
           "rank " + std::to_string(global(rank)) + " belongs to another user (uid " +
               std::to_string(peer.uid) + ")");
  }
  const std::string hello = records_[static_cast<size_t>(rank)]->secret + std::to_string(rank_);
  if (::send(socket.get(), hello.data(), hello.size(), MSG_NOSIGNAL) >= 0) {
    links_.add(rank, std::move(socket), peer.pid);
  }
  return answer;
}

void Rendezvous::answerCalls() {
  while (true) {
    Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      break;
    }
    const ucred peer = credentials(socket);
    if (isMine(peer)) {
      callers_.push_back({std::move(socket), peer.pid});
    }
  }
  callers_.remove_if([this](Caller& caller) { return answer(caller); });
}

// True when the caller has been dealt with.
bool Rendezvous::answer(Caller& caller) {
  std::array<char, 128> hello;
  const ssize_t length = ::recv(caller.socket.get(), hello.data(), hello.size(), 0);
  if (length < 0) {
    return errno != EAGAIN && errno != EINTR;
  }
  const std::string said(hello.data(), static_cast<size_t>(length));
  if (said.size() <= me_.secret.size() || said.compare(0, me_.secret.size(), me_.secret) != 0) {
    return true;  // somebody who has not read this rank's record
  }
  const int rank = std::atoi(said.c_str() + me_.secret.size());
  if (rank > rank_ && rank < size() && !links_.has(rank)) {
    links_.add(rank, std::move(caller.socket), caller.pid);
  }
  return true;
}

void Rendezvous::watch() {
  std::vector<int> dead;
  std::string why;
  const Departure* quitter = nullptr;
  for (const Departure& departure : links_.look()) {
    if (departure.how == Departure::How::kDied) {
      dead.push_back(global(departure.rank));
      why += (why.empty() ? "" : "; ") + departure.describe(global(departure.rank));
    } else if (departure.how == Departure::How::kGaveUp) {
      quitter = &departure;
    }
    // Who left in order had met all, this rank too: what it had to pass on is here.
  }
  if (!dead.empty()) {
    giveUp(Cause::kPeerFailed, dead, why);
  }
  if (quitter != nullptr) {
    giveUp(quitter->cause,
           quitter->blamed.empty() ? std::vector<int>{global(quitter->rank)} : quitter->blamed,
           quitter->why);
  }
}

// A rank that has published its record listens until all are linked, so a refused call means that
// it is gone.
void Rendezvous::probeUnlinked() {
  if (!next_probe_.passed()) {
    return;
  }
  next_probe_ = Deadline::in(kProbeEvery);
  if (interrupt_) {
    interrupt_();
  }
  rejectTwin(published_.look(rank_));
  for (int rank = 0; rank < size(); ++rank) {
    const auto& record = records_[static_cast<size_t>(rank)];
    if (!record || links_.has(rank) || connect(unixSocket(), rank) != Answer::kRefused) {
      continue;
    }
    const bool alive = isAlive(record->pid);
    if (alive && ++refusals_ < kMostRefusals) {
      continue;
    }
    giveUp(Cause::kPeerFailed, {global(rank)},
           "rank " + std::to_string(global(rank)) + " (pid " + std::to_string(record->pid) +
               (alive ? ") has given up making the group" : ") died"));
  }
}

void Rendezvous::pause() {
  pollfd polled{listener_.get(), POLLIN, 0};
  ::poll(&polled, 1, static_cast<int>(pause_.count()));
  pause_ = std::min(pause_ * 2, kLongestPause);
}

void Rendezvous::giveUp(Cause cause, const std::vector<int>& ranks, const std::string& why) {
  links_.sayFailed(cause, ranks, why);
  throw Error(cause, ranks, why);
}

void Rendezvous::abandon(const std::string& why) {
  const int self = global(rank_);
  links_.sayFailed(Cause::kPeerFailed, {self},
                   "rank " + std::to_string(self) + " could not make the group: " + why);
}

void Rendezvous::giveUpOnTime() {
  std::vector<int> missing;
  for (int rank = 0; rank < size(); ++rank) {
    if (rank != rank_ && !links_.has(rank)) {
      missing.push_back(global(rank));
    }
  }
  giveUp(Cause::kTimeout, missing,
         "timeout after " + inSeconds(deadline_.limit()) + "; nothing from " + rankList(missing));
}

Fd Rendezvous::share(Fd made) {
  if (rank_ == 0) {
    for (int rank = 1; rank < size(); ++rank) {
      links_.sendFile(rank, made);
    }
    return made;
  }
  while (true) {
    Fd received = links_.receiveFile(0);
    if (received.valid()) {
      return received;
    }
    watch();
    probeUnlinked();
    if (deadline_.passed()) {
      giveUp(Cause::kTimeout, {global(0)},
             "rank " + std::to_string(global(0)) + " has not passed the group's memory in time");
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
}

}  // namespace bluefog
