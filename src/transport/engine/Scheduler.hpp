#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "bootstrap/Links.hpp"
#include "transport/boards/Board.hpp"
#include "transport/hosts/Bridge.hpp"
#include "transport/memory/PendingWakeups.hpp"
#include "transport/memory/Segments.hpp"
#include "transport/messages/Mailbox.hpp"
#include "transport/operations/Failure.hpp"
#include "transport/operations/GroupFailure.hpp"
#include "transport/operations/Op.hpp"

namespace bluefog {

// The operations of one group that are under way: steps them, watches their deadlines and the
// peers' lives, and says why one failed. Knows no threads: used by the one that drives.
class Scheduler {
 public:
  using Ops = std::vector<std::shared_ptr<Op>>;
  using Time = Deadline::Clock::time_point;

  // `transport`: where ranks are on other hosts.
  Scheduler(const std::shared_ptr<const Segments>& segments, const Membership& members, Links links,
            std::unique_ptr<RemoteTransport> transport);
  // What it still sends to peers for operations that have failed breaks off: they hear the goodbye.
  ~Scheduler() { mailbox_.fallSilent(); }
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  Board& board() { return board_; }
  Board& returns() { return returns_; }
  Mailbox& mailbox() { return mailbox_; }
  // Any thread may ask.
  Process processOf(int rank) const { return links_.processOf(rank); }
  bool spansHosts() const { return bridge_ != nullptr; }

  // In the order issued.
  void add(std::shared_ptr<Op> op);
  // Steps everything that can move, and rings the peers that can then. True when something moved.
  bool progress();
  // Lets the next pass look into the lanes even if this rank waits for no message: a peer may wait
  // for room in one.
  void lookIntoLanes() { look_into_lanes_ = true; }
  // The look at what does not announce itself: deadlines and departures. Due at nextTick(), and
  // after each sleep.
  void tick(Time now);
  Time nextTick() const { return std::min(next_tick_, next_deadline_); }
  // While the group's only caller sleeps. Says what it waits for, to peers that may wait for this
  // rank in another operation, until something moves or the caller may do something else.
  void publishBlocked();
  void clearBlocked();
  // Looks whether this rank waits for such a peer.
  void watchSuspect(Time now);
  // This rank has made that call, past all operations.
  void noteCall(const Counter& counter, uint64_t number);
  // How long to sleep when nothing moves: longer and longer.
  std::chrono::milliseconds sleepTime() const { return sleep_time_; }

  // Fails what is pending; the group's other ranks are told.
  void failAll(const Failure& failure);
  // The same in silence: this rank goes, and nothing comes after it.
  void leave(const Failure& failure);
  // Whether nothing is under way, and nothing has come that is to be told.
  bool isQuiet() const {
    return collectives_.empty() && messages_.empty() && finished_.empty() && !bridge_ &&
           mailbox_.isQuiet();
  }
  void notifyPeers() { wakeups_.notifyAll(); }
  // Whether it has to go on looking into the lanes though nobody here waits for anything.
  bool owesAnything() const { return detached_ > 0 || mailbox_.owesAnything(); }
  bool anyFinished() const { return !finished_.empty(); }
  // Tells the peers that this rank leaves in order.
  void sayGoodbye();
  // How long until what ranks on other hosts may have sent is looked for: longer and longer.
  std::chrono::nanoseconds pollInterval();
  // With their errors set, tasks destroyed.
  Ops takeFinished() { return std::exchange(finished_, {}); }

 private:
  enum class Step { kBlocked, kMoved, kDone };

  // Messages of this rank's own calls.
  size_t messagesCalled() const { return messages_.size() - detached_ - services_; }
  std::optional<Failure> takeDeferredFailure();
  bool stepCollectives();
  bool stepMessages();
  void wakeRunnable();
  Step step(Op& op);
  // Steps a message and, where that ended it, finishes it.
  Step advance(const std::shared_ptr<Op>& op);
  void watchDeadlines(Time now);
  Failure late(const Op& message) const;
  void watchPeers();
  void watchSuspects();
  void watchMismatches();
  bool isUnderWay(const LateMismatch& mismatch) const;
  // Finishes the messages of which `why` gives a failure.
  template <class Why>
  void endMessages(const Why& why);
  void noteTold(uint64_t sequence);
  void endWaitFor(int peer, const Signature& called);
  std::optional<BlockedState::Wait> suspectOf(int peer) const;
  // Lets the ranks of this host know which calls of neighbors this rank has made.
  void publishCalls();
  void finish(const std::shared_ptr<Op>& op, const std::optional<Failure>& failure);
  void failCollectives(const Failure& failure);

  const Segment& segment_;  // of this host
  const Membership& members_;
  Links links_;
  PendingWakeups wakeups_;
  Board board_;
  Board returns_;
  Mailbox mailbox_;
  std::unique_ptr<Bridge> bridge_;  // to ranks on other hosts
  std::chrono::microseconds poll_interval_{0};
  int polls_in_vain_ = 0;

  std::deque<std::shared_ptr<Op>> collectives_;
  std::map<uint64_t, std::shared_ptr<Op>> messages_;  // by sequence number
  // Of those, and of some that have ended: the others sleep until the mailbox names them.
  std::set<uint64_t> awake_;
  size_t detached_ = 0;        // of the messages
  size_t services_ = 0;        // of the messages, too
  size_t detached_bytes_ = 0;  // their bytes
  Ops finished_;
  std::deque<uint64_t> told_of_;        // sequence numbers of messages whose mismatch was told here
  std::optional<GroupFailure> broken_;  // why no collective can succeed any more
  size_t departures_seen_ = 0;
  RankSet departed_;
  bool has_moved_ = false;  // since the last look at who is gone
  struct DeadlockSuspect {
    int peer;
    uint64_t sequence;
    Time since;
  };
  std::optional<DeadlockSuspect>
      suspect_;             // waits for this rank in another operation than this rank for it
  uint64_t published_ = 0;  // see CallsMade
  bool look_into_lanes_ = false;
  std::chrono::milliseconds sleep_time_{0};
  Time next_tick_{};
  Time next_deadline_ = Time::max();  // none passes before
};

}  // namespace bluefog
