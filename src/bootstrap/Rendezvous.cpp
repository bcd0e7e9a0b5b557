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

// Topics of the records.
const std::string kRoster = "roster";
const std::string kGaveUp = "gave up";

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
                       std::function<void()> interrupt, std::string accelerator)
    : published_(records),
      rank_(rank),
      global_ranks_(std::move(global_ranks)),
      deadline_(deadline),
      interrupt_(std::move(interrupt)),
      me_(describeThisRank(std::move(accelerator), global_ranks_)),
      records_(global_ranks_.size()),
      links_(size()),
      next_probe_(Deadline::in(kProbeEvery)) {}

void Rendezvous::meet() {
  records_[static_cast<size_t>(rank_)] = me_;
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
    if (unmet().empty()) {
      return;
    }
    pause([this] { return unmet(); });
  }
}

bool Rendezvous::isMet(int rank) const {
  return records_[static_cast<size_t>(rank)] &&
         (rank == rank_ || !isHere(rank) || links_.has(rank));
}

std::vector<int> Rendezvous::unmet() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank) {
    if (!isMet(rank)) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

bool Rendezvous::spansHosts() const {
  return std::any_of(records_.begin(), records_.end(),
                     [this](const auto& record) { return record->place != me_.place; });
}

int Rendezvous::leader() const {
  int rank = 0;
  while (!isHere(rank)) {
    ++rank;
  }
  return rank;
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
  const std::optional<std::string> earlier = published_.look(kRoster, rank_);
  published_.publish(kRoster, me_.encode());  // so that the earlier one hears of it, too
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
  checkMembers(rank_, twin);
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
    const std::optional<std::string> text = look(kRoster, rank);
    if (!text) {
      continue;
    }
    record = decode(rank, *text);
    checkIsAlike(rank);
    if (isHere(rank) && rank < rank_) {
      to_call_.push_back(rank);
    }
  }
}

std::optional<std::string> Rendezvous::look(const std::string& topic, int rank) {
  try {
    return published_.look(topic, rank);
  } catch (const Error& error) {  // the store does not answer
    links_.sayFailed({error.cause(), error.ranks(), error.what()});
    throw;
  } catch (...) {
    // The store may have died with the rank that held it: then name that rank.
    for (int tries = 0; tries < 20; ++tries) {
      watch();
      std::this_thread::sleep_for(kLongestPause);
    }
    throw;
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

void Rendezvous::checkMembers(int rank, const RankRecord& other) {
  if (other.members == me_.members) {
    return;
  }
  const auto listed = [](const std::vector<int>& ranks) {
    std::string text;
    for (const int each : ranks) {
      text += (text.empty() ? "[" : ", ") + std::to_string(each);
    }
    return text + "]";
  };
  const auto place = static_cast<size_t>(rank);
  const int who = place < other.members.size() ? other.members[place] : global(rank);
  giveUp(Cause::kMismatch, {who},
         "rank " + std::to_string(who) + " makes this group of ranks " + listed(other.members) +
             ", rank " + std::to_string(global(rank_)) + " of ranks " + listed(me_.members) +
             "; every rank must call new_group for each group, in the same order, also for those "
             "that it is no member of (or each member alone, with use_local_synchronization=True)");
}

void Rendezvous::checkIsAlike(int rank) {
  const RankRecord& other = *records_[static_cast<size_t>(rank)];
  const std::string who = "rank " + std::to_string(global(rank));
  const std::string here = "rank " + std::to_string(global(rank_));
  if (other.version != me_.version) {
    giveUp(Cause::kMismatch, {global(rank)},
           who + " (on " + other.host + ") runs bluefog_pg " + other.version + ", " + here +
               " (on " + me_.host + ") runs " + me_.version + "; install one version everywhere");
  }
  checkMembers(rank, other);
  if (other.accelerator != me_.accelerator) {
    const auto named = [](const RankRecord& record) {
      return record.accelerator.empty() ? std::string("no accelerator") : record.accelerator;
    };
    giveUp(Cause::kMismatch, {global(rank)},
           who + " (on " + other.host + ") has " + named(other) + ", " + here + " (on " + me_.host +
               ") has " + named(me_) +
               "; give all ranks one kind, or set BLUEFOG_ACCELERATOR=none for all");
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
    const Reason& reason = quitter->reason;
    giveUp(reason.cause,
           reason.ranks.empty() ? std::vector<int>{global(quitter->rank)} : reason.ranks,
           reason.text);
  }
}

// What ranks of other hosts say, which see their neighbours die.
void Rendezvous::watchElsewhere() {
  for (int rank = 0; rank < size(); ++rank) {
    if (!records_[static_cast<size_t>(rank)] || isHere(rank)) {
      continue;
    }
    if (const std::optional<std::string> said = look(kGaveUp, rank)) {
      const Reason reason = Reason::decode(*said);
      giveUp(reason.cause, reason.ranks, reason.text);
    }
  }
}

// A rank that has published its record listens until all are linked, so a refused call means that
// it is gone.
void Rendezvous::probe() {
  if (!next_probe_.passed()) {
    return;
  }
  next_probe_ = Deadline::in(kProbeEvery);
  if (interrupt_) {
    interrupt_();
  }
  rejectTwin(look(kRoster, rank_));
  watchElsewhere();
  for (int rank = 0; rank < size(); ++rank) {
    const auto& record = records_[static_cast<size_t>(rank)];
    if (!record || !isHere(rank) || isMet(rank) ||
        connect(unixSocket(), rank) != Answer::kRefused) {
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

std::string Rendezvous::await(const std::string& topic, int rank) {
  while (true) {
    if (std::optional<std::string> record = look(topic, rank)) {
      return *record;
    }
    watch();
    pause([rank] { return std::vector<int>{rank}; });
  }
}

void Rendezvous::pause(const std::function<std::vector<int>()>& missing) {
  if (deadline_.passed()) {
    giveUpOnTime(missing());
  }
  probe();
  answerCalls();
  pollfd polled{listener_.get(), POLLIN, 0};
  ::poll(&polled, 1, static_cast<int>(pause_.count()));
  pause_ = std::min(pause_ * 2, kLongestPause);
}

void Rendezvous::giveUp(Cause cause, const std::vector<int>& ranks, const std::string& why) {
  sayWhy(cause, ranks, why);
  throw Error(cause, ranks, why);
}

void Rendezvous::sayWhy(Cause cause, const std::vector<int>& ranks, const std::string& why) {
  const Reason reason{cause, ranks, why};
  links_.sayFailed(reason);
  const bool some_are_elsewhere =
      std::any_of(records_.begin(), records_.end(),
                  [this](const auto& record) { return record && record->place != me_.place; });
  if (some_are_elsewhere) {
    try {
      published_.publish(kGaveUp, reason.encode());
    } catch (const std::exception&) {
      // The store may have died with the rank that held it: what is thrown next says so.
    }
  }
}

void Rendezvous::abandon(const std::string& why) {
  const int self = global(rank_);
  sayWhy(Cause::kPeerFailed, {self},
         "rank " + std::to_string(self) + " could not make the group: " + why);
}

void Rendezvous::giveUpOnTime(const std::vector<int>& missing) {
  std::vector<int> ranks;
  for (const int rank : missing) {
    ranks.push_back(global(rank));
  }
  giveUp(Cause::kTimeout, ranks,
         "timeout after " + inSeconds(deadline_.limit()) + "; nothing from " + rankList(ranks));
}

Fd Rendezvous::share(Fd made) {
  const int leader = this->leader();
  if (rank_ == leader) {
    for (int rank = 0; rank < size(); ++rank) {
      if (rank != rank_ && isHere(rank)) {
        links_.sendFile(rank, made);
      }
    }
    return made;
  }
  while (true) {
    Fd received = links_.receiveFile(leader);
    if (received.valid()) {
      return received;
    }
    watch();
    probe();
    if (deadline_.passed()) {
      giveUp(
          Cause::kTimeout, {global(leader)},
          "rank " + std::to_string(global(leader)) + " has not passed the group's memory in time");
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
}

}  // namespace bluefog
