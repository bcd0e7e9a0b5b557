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
#include "transport/messages/DetachedSends.hpp"
#include "transport/messages/Mailbox.hpp"
#include "transport/operations/CollectiveOp.hpp"
#include "transport/operations/Failure.hpp"
#include "transport/operations/GroupFailure.hpp"
#include "transport/operations/MessageOp.hpp"

namespace bluefog {

// A Scheduler makes progress with the operations of one group that are under way. It steps them,
// watches their deadlines and the peers' lives, and says why one failed. It owns the group's
// boards, mailbox, links and bridge, and holds the operations until takeFinished(). The membership
// must outlive it.
// Thread safety: only the driving thread uses it, or a thread that holds the engine's lock while
// nobody drives. Any thread may call processOf() and spansHosts().
class Scheduler {
 public:
  using Ops = std::vector<std::shared_ptr<Op>>;
  using Time = Deadline::Clock::time_point;

  // `transport` is null if all ranks are on one host.
  Scheduler(const std::shared_ptr<const Segments>& segments, const Membership& members, Links links,
            std::unique_ptr<RemoteTransport> transport);
  // Breaks off what is still sent for operations that have failed. The peers are not told, since
  // they hear the goodbye.
  ~Scheduler() { mailbox_.fallSilent(); }
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  Board& board() { return board_; }
  Board& returns() { return returns_; }
  Mailbox& mailbox() { return mailbox_; }
  // Returns that rank's process; see Links. Any thread may call it.
  Process processOf(int rank) const { return links_.processOf(rank); }
  bool spansHosts() const { return bridge_ != nullptr; }

  // Adds a posted operation. The calls must come in the order of the sequence numbers.
  void add(std::shared_ptr<Op> op);
  // Makes one pass: steps everything that can move, and wakes the peers that can then move, too.
  // Returns whether something moved.
  bool progress();
  // Makes the next pass look into the lanes even if this rank waits for no message, because a peer
  // may wait for room in one.
  void lookIntoLanes() { look_into_lanes_ = true; }
  // Looks at what does not announce itself: deadlines and departures. It is due at nextTick(), and
  // after each sleep.
  void tick(Time now);
  Time nextTick() const { return std::min(next_tick_, next_deadline_); }
  // Call it while the program's only caller sleeps. Publishes what it waits for, for peers that may
  // wait for this rank in another operation. That stands until something moves, or until
  // clearBlocked() because the caller may do something else.
  void publishBlocked();
  void clearBlocked();
  // Ends this rank's collective with a mismatch if it waits for a peer that waits for this rank in
  // another operation, and has done so for long enough.
  void watchSuspect(Time now);
  // Notes that this rank has made a neighbor call by the fast path, without an operation.
  void noteCall(const Counter& counter, uint64_t number);
  // Returns how long to sleep when nothing moves. It grows with each tick until something moves.
  std::chrono::milliseconds sleepTime() const { return sleep_time_; }

  // Fails everything that is pending, and tells the group's other ranks.
  void failAll(const Failure& failure);
  // Fails everything that is pending without a word to the others, because this rank leaves and
  // nothing comes after it.
  void leave(const Failure& failure);
  // Returns whether the fast path may be taken: nothing is under way, nothing has come that must be
  // reported, and no rank is on another host.
  bool isQuiet() const {
    return collectives_.empty() && messages_.empty() && finished_.empty() && !bridge_ &&
           mailbox_.isQuiet();
  }
  void notifyPeers() { wakeups_.notifyAll(); }
  // Returns whether this rank must continue to look into the lanes though no operation here waits
  // for anything.
  bool owesAnything() const { return detached_ > 0 || mailbox_.owesAnything(); }
  bool anyFinished() const { return !finished_.empty(); }
  // Tells the peers that this rank leaves in order. Waits a while for what is still to be sent to
  // other hosts.
  void sayGoodbye();
  // Returns how long to wait until the next look for what ranks on other hosts may have sent. It
  // grows with each call until something moves.
  std::chrono::nanoseconds pollInterval();
  // Returns the operations that have finished. Their errors are set and their tasks destroyed.
  Ops takeFinished() { return std::exchange(finished_, {}); }

 private:
  enum class Step { kBlocked, kMoved, kDone };

  // Returns how many of the messages belong to calls of this rank's program.
  size_t messagesCalled() const { return messages_.size() - detached_ - services_; }
  void addMessage(std::shared_ptr<MessageOp> op);
  std::optional<Failure> takeDeferredFailure();
  bool stepCollectives();
  bool stepMessages();
  void wakeRunnable();
  Step step(Op& op);
  // Steps an operation made of messages, and finishes it if that ended it.
  Step advance(const std::shared_ptr<MessageOp>& op);
  void watchDeadlines(Time now);
  Failure late(const MessageOp& message) const;
  void watchPeers();
  void takeDeadlockNotices();
  void watchMismatches();
  bool isUnderWay(const LateMismatch& mismatch) const;
  // Finishes the messages for which `why` returns a failure.
  template <class Why>
  void endMessages(const Why& why);
  void noteTold(uint64_t sequence);
  void endWaitFor(int peer, const Signature& called);
  std::optional<BlockedState::Wait> suspectOf(int peer) const;
  // Lets the ranks of this host know how many neighbor calls this rank has made.
  void publishCalls();
  void finish(const std::shared_ptr<CollectiveOp>& op, const std::optional<Failure>& failure);
  void finish(const std::shared_ptr<MessageOp>& op, const std::optional<Failure>& failure);
  void endTasks(Op& op, const std::optional<Failure>& failure);
  void conclude(std::shared_ptr<Op> op, const std::optional<Failure>& failure);
  void failCollectives(const Failure& failure);

  const Segment& segment_;  // the segment of this host
  const Membership& members_;
  Links links_;
  PendingWakeups wakeups_;
  Board board_;
  Board returns_;
  Mailbox mailbox_;
  std::unique_ptr<Bridge> bridge_;  // null if all ranks are on one host
  std::chrono::microseconds poll_interval_{0};
  int polls_in_vain_ = 0;

  std::deque<std::shared_ptr<CollectiveOp>> collectives_;
  std::map<uint64_t, std::shared_ptr<MessageOp>> messages_;  // by sequence number
  // Failures that came too late for the operations they were of, by the sequence numbers of the
  // messages that tell them. The map is nearly always empty.
  std::map<uint64_t, Failure> deferred_failures_;
  // Sequence numbers of the messages to step, and of some that have ended. The others sleep until
  // the mailbox names them.
  std::set<uint64_t> awake_;
  size_t detached_ = 0;  // how many of the messages are detached
  size_t services_ = 0;  // how many of the messages are services
  CopyBudget copy_budget_;
  Ops finished_;
  std::deque<uint64_t> told_of_;        // messages whose mismatch was reported here
  std::optional<GroupFailure> broken_;  // why no collective can succeed any more
  size_t departures_seen_ = 0;
  RankSet departed_;
  bool has_moved_ = false;  // since the last look at departures
  struct DeadlockSuspect {
    int peer;
    uint64_t sequence;
    Time since;
  };
  std::optional<DeadlockSuspect> suspect_;  // waits for this rank in another operation
  uint64_t published_ = 0;                  // see CallsMade
  bool look_into_lanes_ = false;
  std::chrono::milliseconds sleep_time_{0};
  Time next_tick_{};
  Time next_deadline_ = Time::max();  // no deadline passes before this
};

}  // namespace bluefog
