#include "bootstrap/Rendezvous.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>
#include <utility>

#include "bootstrap/LocalSocket.hpp"
#include "core/BootClock.hpp"
#include "core/Error.hpp"

namespace bluefog {
namespace {

using local_socket::CallResult;
using std::chrono::milliseconds;

constexpr milliseconds kShortestPause{1};
// The longest pause is a tenth of the time waited so far, within these bounds, because all
// processes ask one store.
constexpr milliseconds kLongestPauseAtFirst{10};
constexpr milliseconds kLongestPause{100};
constexpr milliseconds kProbeEvery{100};
// A process that dies closes its sockets a moment before it has ended.
constexpr milliseconds kToEnd{200};

// The members of an Epoch publish their records under this topic.
constexpr auto kRecord = "record";

// One probe looks at so many of the ranks that are not on the roster.
constexpr int kNewcomers = 16;

// This is when the process last ended an attempt to make a group, successful or not, in nanoseconds
// on the boot clock.
std::atomic<int64_t> last_end{0};

// Returns the key under which a process says why the group comes to nothing. Usually `rank_zero` is
// the id of rank 0's process, for all on its roster. A notice for one process alone has that
// process's id.
std::string noticeOf(const std::string& rank_zero) {
  return rank_zero + "/gave up";
}

std::string describe(const RankRecord& record) {
  return "pid " + std::to_string(record.pid) + " on " + record.host;
}

}  // namespace

Rendezvous::Rendezvous(KeyValueStore& store, RankRecord me, int rank, Deadline deadline,
                       std::function<void()> interrupt)
    : store_(store),
      rank_(rank),
      deadline_(deadline),
      interrupt_(std::move(interrupt)),
      roster_(store, std::move(me), rank),
      callers_(own_callers_),
      links_(size()),
      last_end_before_(last_end.load()),
      next_probe_(Deadline::in(kProbeEvery)) {}

Rendezvous::Rendezvous(KeyValueStore& store, Endpoint& endpoint, const Epoch& epoch,
                       Deadline deadline, std::function<void()> interrupt)
    : store_(store),
      endpoint_(&endpoint),
      epoch_(epoch.name()),
      rank_(epoch.rank),
      deadline_(deadline),
      interrupt_(std::move(interrupt)),
      roster_(store, epoch.members, epoch.rank),
      records_(std::in_place, store, epoch_, epoch.rank),
      callers_(endpoint.callers()),
      links_(size()),
      last_end_before_(last_end.load()),
      next_probe_(Deadline::in(kProbeEvery)) {}

template <typename Question>
auto Rendezvous::ask(const Question& question) {
  try {
    return question();
  } catch (const Error& error) {
    const Reason reason{error.cause(), error.ranks(), error.what()};
    // Where the store is silent, leaving a notice would have to wait, too.
    if (error.cause() == Cause::kTimeout) {
      links_.sayFailed(reason);
    } else {
      sayWhy(reason);
    }
    throw;
  } catch (...) {
    // The store may have died with the rank that held it, so name that rank if it is dead.
    for (const Deadline end = Deadline::in(kToEnd); !end.passed();) {
      watch();
      probeListeners();
      std::this_thread::sleep_for(kLongestPauseAtFirst);
    }
    throw;
  }
}

Rendezvous::~Rendezvous() {
  if (endpoint_ != nullptr) {
    endpoint_->noteEnded(epoch_);
  }
  last_end = boot_clock::now();
}

void Rendezvous::meet() {
  if (size() == 1) {
    return;
  }
  if (!epoch_.empty()) {
    for (int rank = 0; rank < size(); ++rank) {
      checkIsAlike(rank);
    }
    const bool spans_hosts = spansHosts();
    if (spans_hosts) {
      publishRecord();
    }
    link();
    if (spans_hosts) {
      renewRecords();
    }
    return;
  }
  // Where unix sockets are refused, no other rank counts as being on this host.
  if (!areUnixSocketsRefused()) {
    // The socket must listen before others can read its name.
    own_callers_ = Callers(local_socket::listenAt(roster_.me().name(), size()));
  }
  agree();
  link();
}

void Rendezvous::publishRecord() {
  RankRecord own = describeThisRank(roster_.me().accelerator, roster_.me().members);
  own.id = roster_.me().id;
  own.secret = roster_.me().secret;
  records_->publish(kRecord, own.encode());
  roster_.renew(rank_, std::move(own));
}

void Rendezvous::renewRecords() {
  for (int rank = 0; rank < size(); ++rank) {
    if (rank != rank_) {
      roster_.renew(rank, RankRecord::decode(await(kRecord, rank)));
    }
  }
}

void Rendezvous::agree() {
  while (true) {
    const bool has_changed = ask([this] { return roster_.advance(); });
    for (int rank = 0; has_changed && rank < size(); ++rank) {
      checkIsAlike(rank);
    }
    if (roster_.isComplete()) {
      break;
    }
    if (has_changed) {
      pause_ = kShortestPause;
    }
    pause([this] { return ask([this] { return roster_.missing(); }); });
  }
  records_.emplace(store_, roster_.rankZero(), rank_);
}

void Rendezvous::link() {
  for (int rank = 0; rank < rank_; ++rank) {
    if (isHere(rank)) {
      to_call_.push_back(rank);
    }
  }
  while (true) {
    std::erase_if(to_call_, [this](int rank) { return call(rank) != CallResult::kBusy; });
    answerCalls();
    watch();
    if (unlinked().empty()) {
      return;
    }
    pause([this] { return unlinked(); });
  }
}

std::vector<int> Rendezvous::unlinked() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank) {
    if (rank != rank_ && isHere(rank) && !links_.isMutual(rank)) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

bool Rendezvous::spansHosts() const {
  for (int rank = 0; rank < size(); ++rank) {
    if (!isHere(rank)) {
      return true;
    }
  }
  return false;
}

int Rendezvous::leader() const {
  int rank = 0;
  while (!isHere(rank)) {
    ++rank;
  }
  return rank;
}

void Rendezvous::tellOfRival() {
  const std::optional<RankRecord>& rival = roster_.rival();
  if (rival && !std::exchange(has_told_, true)) {
    leaveNotice(roster_.rankZero(), {Cause::kPeerFailed,
                                     {global(rank_)},
                                     name(rank_) + " (" + describe(*rival) +
                                         ") has been replaced by " + describe(roster_.me())});
  }
}

void Rendezvous::rejectTwin() {
  const std::optional<RankRecord> twin = ask([this] { return roster_.replacement(); });
  if (!twin) {
    return;
  }
  const Reason reason =
      otherMembers(*twin, rank_)
          .value_or(Reason{Cause::kMismatch,
                           {global(rank_)},
                           "two processes say that they are " + name(rank_) + " (" +
                               describe(roster_.me()) + ", " + describe(*twin) +
                               "); give each a RANK of its own"});
  leaveNotice(twin->id, reason);
  giveUp(reason);
}

std::optional<Reason> Rendezvous::otherMembers(const RankRecord& other, int rank) const {
  const std::vector<int>& own = roster_.me().members;
  if (other.members == own) {
    return std::nullopt;
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
  return Reason{
      Cause::kMismatch,
      {who},
      "rank " + std::to_string(who) + " makes this group of ranks " + listed(other.members) + ", " +
          name(rank_) + " of ranks " + listed(own) +
          "; every rank must call new_group for each group, in the same order, also for those that "
          "it is no member of (or each member alone, with use_local_synchronization=True)"};
}

void Rendezvous::checkIsAlike(int rank) {
  if (rank == rank_ || !roster_.record(rank)) {
    return;
  }
  const RankRecord& me = roster_.me();
  const RankRecord& other = *roster_.record(rank);
  const std::string who = name(rank) + " (on " + other.host + ")";
  const std::string here = name(rank_) + " (on " + me.host + ")";
  if (other.version != me.version) {
    giveUp({Cause::kMismatch,
            {global(rank)},
            who + " runs bluefog_pg " + other.version + ", " + here + " runs " + me.version +
                "; install one version everywhere"});
  }
  if (const std::optional<Reason> reason = otherMembers(other, rank)) {
    giveUp(*reason);
  }
  if (other.accelerator != me.accelerator) {
    const auto named = [](const RankRecord& record) {
      return record.accelerator.empty() ? std::string("no accelerator") : record.accelerator;
    };
    giveUp({Cause::kMismatch,
            {global(rank)},
            who + " has " + named(other) + ", " + here + " has " + named(me) +
                "; give all ranks one kind, or set BLUEFOG_ACCELERATOR=none for all"});
  }
}

CallResult Rendezvous::call(int rank) {
  Fd socket = local_socket::make();
  const CallResult result = local_socket::call(socket, record(rank).name());
  if (result == CallResult::kRefused) {
    next_probe_ = Deadline::in(milliseconds(0));  // so that the next probe finds out why
  }
  if (result != CallResult::kTaken) {
    return result;
  }
  const ucred peer = local_socket::peerOf(socket);
  if (!local_socket::isSameUser(peer)) {
    giveUp({Cause::kPeerFailed,
            {global(rank)},
            name(rank) + " belongs to another user (uid " + std::to_string(peer.uid) + ")"});
  }
  const std::string hello = this->hello(record(rank), rank_);
  if (::send(socket.get(), hello.data(), hello.size(), MSG_NOSIGNAL) >= 0) {
    links_.add(rank, std::move(socket), peer.pid);
  }
  return result;
}

std::string Rendezvous::hello(const RankRecord& record, int as) const {
  return Hello{record.secret, epoch_, roster_.me().id, as}.encode();
}

CallResult Rendezvous::knock(int rank, const RankRecord& record) {
  Fd& socket = knocks_[rank];
  // The answer to the last knock has come by now, if there is one.
  if (const std::optional<Reason> reason = Links::hearFailed(socket)) {
    giveUp({reason->cause, {global(rank)}, reason->text});
  }
  socket = local_socket::make();
  const CallResult result = local_socket::call(socket, record.name());
  const std::string hello = this->hello(record, Hello::kKnocks);
  // A rank that no longer listens hears nothing.
  [[maybe_unused]] const ssize_t sent =
      ::send(socket.get(), hello.data(), hello.size(), MSG_NOSIGNAL);
  return result;
}

void Rendezvous::answerCalls() {
  callers_.answer([this](Caller& caller) { return answer(caller); });
}

bool Rendezvous::answer(Caller& caller) {
  const Hello& hello = caller.hello;
  if (hello.secret != roster_.me().secret) {
    return true;  // The caller has not read this rank's record.
  }
  if (hello.epoch != epoch_) {
    return endpoint_ == nullptr || answerOther(caller);
  }
  if (hello.rank > rank_ && hello.rank < size() && !links_.has(hello.rank)) {
    links_.add(hello.rank, std::move(caller.socket), caller.pid);
    links_.welcome(hello.rank);
  }
  return true;
}

bool Rendezvous::answerOther(Caller& caller) {
  if (endpoint_->hasEnded(caller.hello.epoch)) {
    Links::sayFailed(caller.socket, {Cause::kPeerFailed,
                                     {},
                                     "pid " + std::to_string(roster_.me().pid) +
                                         " has gone on to another membership"});
    return true;
  }
  int rank = 0;
  while (rank < size() && record(rank).id != caller.hello.id) {
    ++rank;
  }
  // A process that is linked may have ended this epoch, and a process that is no member of it may
  // be one of the next.
  const bool is_gone = local_socket::hasEnded(caller.socket);
  if (is_gone || rank == size() || links_.has(rank)) {
    return is_gone;
  }
  const std::string theirs = Epoch::uuidIn(caller.hello.epoch);
  const std::string ours = Epoch::uuidIn(epoch_);
  const std::string how = theirs == ours ? "both have uuid " + ours + ", but other handles"
                                         : "uuid " + theirs + " there, uuid " + ours + " here";
  const std::string what = "the members do not agree: " + name(rank) + " (pid " +
                           std::to_string(caller.pid) + ") and " + name(rank_) + " (pid " +
                           std::to_string(roster_.me().pid) + ") reconfigure differently (" + how +
                           "); all members must pass the same uuid and handles";
  // Each side blames the other one.
  Links::sayFailed(std::exchange(caller.socket, Fd()), {Cause::kMismatch, {}, what});
  giveUp({Cause::kMismatch, {global(rank)}, what});
}

void Rendezvous::watch() {
  std::vector<int> dead;
  std::string why;
  const Departure* quitter = nullptr;
  for (const Departure& departure : links_.look()) {
    if (departure.how == Departure::How::kGaveUp) {
      quitter = &departure;
    } else if (departure.how == Departure::How::kDied) {
      const Process process = links_.processOf(departure.rank);
      if (!process.isNone() && !process.endsIn(kToEnd)) {
        readNoticesIfAny();
        giveUp({Cause::kPeerFailed,
                {global(departure.rank)},
                name(departure.rank) + " (pid " + std::to_string(departure.pid) +
                    ") has given up making the group"});
      }
      dead.push_back(global(departure.rank));
      why += (why.empty() ? "" : "; ") + departure.describe(global(departure.rank));
    }
    // A rank that left in order had met all others, so this rank already has what it had to pass
    // on.
  }
  if (!dead.empty()) {
    giveUp({Cause::kPeerFailed, dead, why});
  }
  if (quitter != nullptr) {
    const Reason& reason = quitter->reason;
    giveUp({reason.cause,
            reason.ranks.empty() ? std::vector<int>{global(quitter->rank)} : reason.ranks,
            reason.text});
  }
}

void Rendezvous::readNoticesIfAny() {
  try {
    readNotices();
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {
    // The store has ended, so there is no notice.
  }
}

void Rendezvous::readNotices() {
  // A twin leaves a notice for this process.
  std::optional<Reason> reason = notice(roster_.me().id);
  if (!reason && roster_.isListed()) {
    reason = notice(roster_.rankZero());
  }
  if (reason) {
    throw Error(reason->cause, reason->ranks, reason->text);
  }
}

std::optional<Reason> Rendezvous::notice(const std::string& id) {
  const std::optional<std::string> text = store_.look(noticeOf(id));
  return text ? std::optional(Reason::decode(*text)) : std::nullopt;
}

void Rendezvous::probe() {
  if (!next_probe_.passed()) {
    return;
  }
  next_probe_ = Deadline::in(kProbeEvery);
  if (interrupt_) {
    interrupt_();
  }
  ask([this] { readNotices(); });
  if (!roster_.isComplete()) {
    rejectTwin();
    tellOfRival();
    probeNewcomers();
    roster_.doubt();
  }
  probeListeners();
}

void Rendezvous::probeListeners() {
  for (int rank = 0; rank < size(); ++rank) {
    const std::optional<RankRecord>& record = roster_.record(rank);
    if (record && rank != rank_ && isHere(*record) && !links_.has(rank)) {
      probeListener(rank, *record);
    }
  }
}

void Rendezvous::probeNewcomers() {
  for (int i = 0; i < std::min(kNewcomers, size()); ++i) {
    const int rank = std::exchange(next_newcomer_, (next_newcomer_ + 1) % size());
    if (rank == rank_ || roster_.record(rank)) {
      continue;
    }
    const std::optional<RankRecord> record = ask([&] { return roster_.read(rank); });
    if (record && isHere(*record) && isOfThisLife(*record)) {
      probeListener(rank, *record);
    }
  }
}

bool Rendezvous::isOfThisLife(const RankRecord& record) const {
  return record.made_at >
         std::max(boot_clock::startOfThisProcess(), roster_.isAgain() ? last_end_before_ : 0);
}

// A rank listens until both it and the others know of all their links. A refused call thus means
// that it is gone.
void Rendezvous::probeListener(int rank, const RankRecord& record) {
  // A child that a dead process has forked may still hold its socket.
  const bool has_ended =
      record.pid_space == roster_.me().pid_space && Process(record.pid).hasEnded();
  if (!has_ended && knock(rank, record) != CallResult::kRefused) {
    return;
  }
  const std::string who = " (pid " + std::to_string(record.pid) + ")";
  if (record.pid_space != roster_.me().pid_space) {
    giveUpOnGone(rank, record, who + " died, or has given up making the group");
  }
  if (Process(record.pid).endsIn(kToEnd)) {
    giveUp({Cause::kPeerFailed, {global(rank)}, name(rank) + who + " died"});
  }
  giveUpOnGone(rank, record,
               who + (epoch_.empty() ? " has given up making the group" : " has left its group"));
}

void Rendezvous::giveUpOnGone(int rank, const RankRecord& record, const std::string& what) {
  std::string said;
  try {
    readNotices();  // The process has left its reason there if it could.
    const std::optional<RankRecord> last = roster_.read(rank);
    if (!roster_.record(rank) && last && last->id != record.id) {
      return;  // The rank tries again, or another process has its place.
    }
    if (!roster_.isListed() && roster_.rival()) {
      giveUp({Cause::kMismatch,
              {global(rank_)},
              "the group has been made with another process as " + name(rank_) + " (" +
                  describe(*roster_.rival()) + "; this one is " + describe(roster_.me()) +
                  "); give each a RANK of its own"});
    }
    // A rank that arrives after the others have given up is on no list. Their notice is not for
    // that rank, because it may say that nothing came from this one.
    if (roster_.lists(record, rank)) {
      const std::optional<Reason> reason = notice(rank == 0 ? record.id : record.answers);
      if (reason && reason->cause != Cause::kTimeout) {
        giveUp(*reason);
      }
      said = reason ? ": " + reason->text : "";
    }
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {
    // The store has ended, so no reason can be read.
  }
  giveUp({Cause::kPeerFailed, {global(rank)}, name(rank) + what + said});
}

std::string Rendezvous::await(const std::string& topic, int rank) {
  while (true) {
    if (std::optional<std::string> record = ask([&] { return records_->look(topic, rank); })) {
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
  std::vector<pollfd> polled{{callers_.socket(), POLLIN, 0}};
  for (const int socket : links_.sockets()) {
    polled.push_back({socket, POLLIN, 0});
  }
  ::poll(polled.data(), polled.size(), static_cast<int>(pause_.count()));
  const auto waited = std::chrono::duration_cast<milliseconds>(Deadline::Clock::now() - began_);
  pause_ = std::min(pause_ * 2, std::clamp(waited / 10, kLongestPauseAtFirst, kLongestPause));
}

void Rendezvous::giveUp(const Reason& reason) {
  sayWhy(reason);
  throw Error(reason.cause, reason.ranks, reason.text);
}

void Rendezvous::sayWhy(const Reason& reason) {
  links_.sayFailed(reason);
  if (roster_.isListed()) {
    leaveNotice(roster_.rankZero(), reason);
  }
}

void Rendezvous::leaveNotice(const std::string& id, const Reason& reason) {
  try {
    store_.set(noticeOf(id), reason.encode());
  } catch (const std::exception&) {
    // The store may have died with the rank that held it. The error that is thrown next says so.
  }
}

void Rendezvous::abandon(const std::string& why) {
  sayWhy({Cause::kPeerFailed, {global(rank_)}, name(rank_) + " could not make the group: " + why});
}

void Rendezvous::giveUpOnTime(const std::vector<int>& missing) {
  std::vector<int> ranks;
  for (const int rank : missing) {
    ranks.push_back(global(rank));
  }
  std::string why =
      "timeout after " + inSeconds(deadline_.limit()) + "; nothing from " + rankList(ranks);
  if (!roster_.isListed() && roster_.rival()) {
    why += "; a group has been made with " + describe(*roster_.rival()) + " as " + name(rank_);
  }
  giveUp({Cause::kTimeout, ranks, why});
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
      giveUp({Cause::kTimeout,
              {global(leader)},
              name(leader) + " has not passed the group's memory in time"});
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
}

}  // namespace bluefog
