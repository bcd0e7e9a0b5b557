#include "transport/engine/Scheduler.hpp"

#include <algorithm>

#include "transport/operations/blocking.hpp"
#include "transport/tuning/Tuning.hpp"

namespace bluefog {
namespace {

using std::chrono::milliseconds;

// While operations wait, deadlines and the peers' lives are looked at between these two intervals.
constexpr milliseconds kShortestSleep{2};
constexpr milliseconds kLongestSleep{50};
// The sequence numbers of this many messages are kept whose failure was reported, because other
// refusals of the same operation come soon after.
constexpr size_t kToldOf = 64;
// Failed operations may still send this many bytes. The sends beyond that are broken off.
constexpr size_t kMostDetached = size_t{256} << 20;
// A rank receives from other hosts at least once in this many passes, also if operations finish all
// the time.
constexpr int kMostUnreceived = 4;
// A rank that leaves stays at most this long for what it still has to send to other hosts.
constexpr milliseconds kLingering{2000};
// Two ranks must have waited this long for each other in different operations before that counts as
// a deadlock.
constexpr milliseconds kSuspectSettled{300};

// Returns the failure that collectives after the failed one get.
Failure inheritedFrom(const GroupFailure& group_failure) {
  Failure failure = group_failure.failure;
  failure.reason = "collective #" + std::to_string(group_failure.sequence) +
                   " of this group failed, so all later ones fail, too; make a new group (" +
                   failure.reason + ")";
  return failure;
}

}  // namespace

Scheduler::Scheduler(const std::shared_ptr<const Segments>& segments, const Membership& members,
                     Links links, std::unique_ptr<RemoteTransport> transport)
    : segment_(segments->shared()),
      members_(members),
      links_(std::move(links)),
      wakeups_(segment_),
      board_(*segments, 0, members, wakeups_),
      returns_(*segments, 1, members, wakeups_),
      mailbox_(*segments, members, wakeups_),
      copy_budget_(kMostDetached) {
  if (transport) {
    bridge_ =
        std::make_unique<Bridge>(segments, members, std::vector<const Board*>{&board_, &returns_},
                                 links_, std::move(transport));
  }
}

void Scheduler::add(std::shared_ptr<Op> op) {
  has_moved_ = true;
  segment_.blockedState(members_.rank).clear();
  next_deadline_ = std::min(next_deadline_, op->deadline.at());
  if (MessageOp* message = op->asMessage()) {
    addMessage(std::shared_ptr<MessageOp>(std::move(op), message));
  } else {
    CollectiveOp* collective = op->asCollective();
    collectives_.emplace_back(std::move(op), collective);
  }
}

void Scheduler::addMessage(std::shared_ptr<MessageOp> op) {
  services_ += op->role == OpRole::kService ? 1 : 0;
  bool is_deferred = false;
  if (op->role == OpRole::kCall && op->signature.where == Where::kHost) {
    if (std::optional<Failure> failure = takeDeferredFailure()) {
      deferred_failures_.emplace(op->sequence, std::move(*failure));
      is_deferred = true;
    }
  }
  // The first step takes the operation's place in the lanes, in the order of the calls, and posts
  // what it expects.
  const Step first = advance(op);
  if (op->counter) {
    mailbox_.calls().note(*op->counter, op->number);
  }
  if (first == Step::kDone) {
    return;
  }
  if (is_deferred && hasSent(*op)) {
    finish(op, std::nullopt);
    return;
  }
  if (departures_seen_ > 0) {
    next_tick_ = {};  // it may need a rank that is gone
  }
  const uint64_t number = op->sequence;
  awake_.insert(number);
  messages_.emplace(number, std::move(op));
}

// Returns a mismatch of an operation that has already ended, which the next call has to report.
std::optional<Failure> Scheduler::takeDeferredFailure() {
  const auto has_ended = [this](const LateMismatch& it) { return !isUnderWay(it); };
  while (std::optional<LateMismatch> mismatch = mailbox_.lateMismatches().take(has_ended)) {
    if (!mismatch->is_of_device &&
        std::count(told_of_.begin(), told_of_.end(), mismatch->sequence) == 0) {
      noteTold(mismatch->sequence);
      return std::move(mismatch->failure);
    }
  }
  return std::nullopt;
}

bool Scheduler::progress() {
  bool moved = stepCollectives();
  if (look_into_lanes_ || !messages_.empty()) {
    look_into_lanes_ = mailbox_.drain();  // drain() may have left something in a lane
    moved |= look_into_lanes_;
  }
  moved |= stepMessages();
  wakeups_.notifyAll();
  if (bridge_) {
    moved |= bridge_->send();
    // Finished operations do not wait for this rank to receive, unless it has not received for a
    // while.
    if (finished_.empty() || ++polls_in_vain_ >= kMostUnreceived) {
      polls_in_vain_ = 0;
      const bool received = bridge_->receive();
      look_into_lanes_ |= received;
      moved |= received;
    }
  }
  if (moved) {
    sleep_time_ = kShortestSleep;
    poll_interval_ = tuning::kShortestPoll;
    has_moved_ = true;
    segment_.blockedState(members_.rank).clear();
  }
  publishCalls();
  return moved;
}

bool Scheduler::stepCollectives() {
  bool moved = false;
  while (!collectives_.empty()) {
    if (!broken_) {
      broken_ = readGroupFailure(segment_.groupFailure());
    }
    // A collective before the failed one continues, because the other ranks have done their part of
    // it.
    if (broken_ && broken_->sequence <= collectives_.front()->sequence) {
      failCollectives(broken_->failure);
      return true;
    }
    Step step = Step::kBlocked;
    try {
      step = this->step(*collectives_.front());
    } catch (const Failure& failure) {
      failCollectives(failure);
      return true;
    } catch (const std::exception& error) {
      failCollectives(failedHere(members_, error));
      return true;
    }
    moved |= step != Step::kBlocked;
    if (step != Step::kDone) {
      break;
    }
    finish(collectives_.front(), std::nullopt);
    collectives_.pop_front();
  }
  return moved;
}

// There may be many thousands of messages, so only those are stepped for which something may have
// changed. When one has sent its first frame, the next message on its lane moves in the same pass.
bool Scheduler::stepMessages() {
  wakeRunnable();
  bool moved = false;
  for (auto it = awake_.begin(); it != awake_.end();) {
    const uint64_t number = *it;
    const auto found = messages_.find(number);
    bool rests = found == messages_.end();
    if (!rests) {
      const Step step = advance(found->second);
      moved |= step != Step::kBlocked;
      rests = step == Step::kDone || sleeps(*found->second);
      if (step == Step::kDone) {
        messages_.erase(found);
      }
    }
    if (rests) {
      awake_.erase(it);
    }
    wakeRunnable();
    it = awake_.upper_bound(number);
  }
  return moved;
}

void Scheduler::wakeRunnable() {
  for (uint64_t number : mailbox_.takeRunnable()) {
    awake_.insert(number);
  }
}

Scheduler::Step Scheduler::step(Op& op) {
  Step result = Step::kDone;
  bool moved = false;
  for (Task& task : op.tasks) {
    if (task.done()) {
      continue;
    }
    moved |= task.advance();
    if (!task.done()) {
      result = Step::kBlocked;
    }
  }
  if (result == Step::kDone && op.epilogue) {
    op.epilogue();
  }
  return result == Step::kBlocked && moved ? Step::kMoved : result;
}

Scheduler::Step Scheduler::advance(const std::shared_ptr<MessageOp>& op) {
  try {
    const Step result = step(*op);
    if (result == Step::kDone) {
      finish(op, std::nullopt);
      return result;
    }
    const std::optional<Failure> cut = cutShort(*op);
    if (!cut) {
      return result;
    }
    finish(op, cut);
  } catch (const Failure& failure) {
    finish(op, failure);
  } catch (const std::exception& error) {
    finish(op, failedHere(members_, error));
  }
  return Step::kDone;
}

void Scheduler::tick(Time now) {
  sleep_time_ = std::min(std::max(sleep_time_ * 2, kShortestSleep), kLongestSleep);
  next_tick_ = now + kLongestSleep;
  watchDeadlines(now);
  mailbox_.calls().endPassedWaits();
  takeDeadlockNotices();  // before watchPeers(), for which the sender of a notice may have left
  watchMismatches();
  watchPeers();
  wakeups_.notifyAll();
}

void Scheduler::publishBlocked() {
  if (!collectives_.empty()) {
    return;
  }
  std::optional<BlockedState::Wait> wait;
  for (const auto& [number, op] : messages_) {
    if (op->role != OpRole::kCall) {
      continue;
    }
    if (op->partners.empty() || wait) {
      return;
    }
    wait = {op->signature, number, {}};
    for (int rank : missingFor(*op)) {
      wait->lacking.add(rank);
    }
  }
  if (wait) {
    segment_.blockedState(members_.rank).set(*wait);
  }
}

void Scheduler::clearBlocked() {
  segment_.blockedState(members_.rank).clear();
  suspect_.reset();
}

void Scheduler::watchSuspect(Time now) {
  if (!collectives_.empty() && messagesCalled() == 0) {
    for (int peer : missingFor(*collectives_.front())) {
      if (const std::optional<BlockedState::Wait> wait = suspectOf(peer)) {
        if (!suspect_ || suspect_->peer != peer || suspect_->sequence != wait->sequence) {
          suspect_ = DeadlockSuspect{peer, wait->sequence, now};
        } else if (now - suspect_->since >= kSuspectSettled) {
          endWaitFor(peer, wait->called);
        }
        return;
      }
    }
  }
  suspect_.reset();
}

// Returns what that rank waits for, if it waits for this rank and has read everything that this
// rank has sent to it.
std::optional<BlockedState::Wait> Scheduler::suspectOf(int peer) const {
  const std::optional<BlockedState::Wait> wait = segment_.blockedState(peer).read();
  return wait && wait->lacking.has(members_.rank) && mailbox_.sends().hasReadAll(peer)
             ? wait
             : std::nullopt;
}

void Scheduler::endWaitFor(int peer, const Signature& called) {
  const Op& op = *collectives_.front();
  for (int other : missingFor(op)) {
    if (const std::optional<BlockedState::Wait> wait = suspectOf(other)) {
      mailbox_.control().sendDeadlockNotice(other, {wait->sequence, op.signature});
    }
  }
  failCollectives(mismatch(members_, op, peer, called));
}

template <class Why>
void Scheduler::endMessages(const Why& why) {
  std::erase_if(messages_, [&](const auto& entry) {
    const std::shared_ptr<MessageOp>& op = entry.second;
    const std::optional<Failure> failure = why(op);
    if (failure) {
      finish(op, failure);
    }
    return failure.has_value();
  });
}

void Scheduler::takeDeadlockNotices() {
  for (int peer = 0; peer < members_.size; ++peer) {
    const std::optional<DeadlockNotice> told = mailbox_.control().takeDeadlockNotice(peer);
    const auto found = told ? messages_.find(told->waits) : messages_.end();
    if (found == messages_.end() || found->second->role == OpRole::kDetached) {
      continue;
    }
    finish(found->second, mismatch(members_, *found->second, peer, told->called));
    messages_.erase(found);
  }
}

bool Scheduler::isUnderWay(const LateMismatch& mismatch) const {
  const auto found = messages_.find(mismatch.sequence);
  return found != messages_.end() && found->second->role != OpRole::kDetached;
}

// An operation with a mismatch fails now, even if it still waits for other ranks.
void Scheduler::watchMismatches() {
  const auto is_under_way = [this](const LateMismatch& it) { return isUnderWay(it); };
  while (const std::optional<LateMismatch> mismatch =
             mailbox_.lateMismatches().take(is_under_way)) {
    const auto found = messages_.find(mismatch->sequence);
    finish(found->second, mismatch->failure);
    messages_.erase(found);
  }
}

// This looks at all operations only when one may be late, because there may be many thousands.
void Scheduler::watchDeadlines(Time now) {
  if (now < next_deadline_) {
    return;
  }
  for (const auto& op : collectives_) {
    if (op->deadline.passed(now)) {
      // The ranks that the operation at the front lacks are to blame, since it holds up those
      // behind it.
      failCollectives(timedOut(members_, *op, lateFor(*collectives_.front())));
      break;
    }
  }
  endMessages([&](const std::shared_ptr<MessageOp>& op) {
    return op->deadline.passed(now) ? std::optional(late(*op)) : std::nullopt;
  });
  next_deadline_ = Time::max();
  for (const auto& op : collectives_) {
    next_deadline_ = std::min(next_deadline_, op->deadline.at());
  }
  for (const auto& [number, op] : messages_) {
    next_deadline_ = std::min(next_deadline_, op->deadline.at());
  }
}

// The missing ranks may have called something that this rank has not called, and then the failure
// says so.
Failure Scheduler::late(const MessageOp& message) const {
  const std::vector<int> missing = lateFor(message);
  Failure failure = timedOut(members_, message, missing);
  bool may_be_no_neighbor = isBetweenNeighbors(message.signature.kind) && !missing.empty();
  for (int peer : missing) {
    const std::string rank = "; rank " + std::to_string(members_.global(peer));
    if (const std::optional<uint64_t> made = mailbox_.calls().madeBy(peer);
        made && message.counter == Counter()) {
      failure.reason += rank + " has made " + std::to_string(*made) +
                        " of these calls, and this is #" + std::to_string(message.number);
      may_be_no_neighbor = false;
    }
    if (const std::optional<Signature> sent = mailbox_.receives().unexpectedFrom(peer)) {
      failure.reason +=
          rank + " has sent " + name(*sent) + details(*sent) + ", which this rank has not called" +
          (matchedAs(sent->kind) == matchedAs(message.signature.kind) ? " by that name or tag"
                                                                      : "");
    }
  }
  if (may_be_no_neighbor) {
    failure.reason +=
        "; a rank named here that is not late does not exchange with this one: compare "
        "set_topology, src_weights and dst_weights";
  }
  return failure;
}

void Scheduler::noteCall(const Counter& counter, uint64_t number) {
  mailbox_.calls().note(counter, number);
  publishCalls();
}

void Scheduler::publishCalls() {
  const uint64_t last = mailbox_.calls().last();
  if (last != published_ && mailbox_.sends().hasSentFirsts()) {
    published_ = last;
    segment_.callsMade(members_.rank).number.store(last, std::memory_order_release);
  }
}

void Scheduler::watchPeers() {
  const std::vector<Departure>& gone = links_.look();
  if (gone.size() != departures_seen_) {
    // The frames that they published before they went are still there. They get one more pass
    // before the next tick judges.
    departures_seen_ = gone.size();
    departed_ = setOf(gone);
    mailbox_.giveUpOn(departed_);
    has_moved_ = true;
    sleep_time_ = milliseconds(0);
    next_tick_ = {};
    publishCalls();
    return;
  }
  // A departure is final. So the same operations lack these ranks as at the last look, unless
  // something moved.
  if (gone.empty() || !std::exchange(has_moved_, false)) {
    return;
  }
  if (!collectives_.empty()) {
    const Op& op = *collectives_.front();
    if (lacks(op, departed_)) {
      failCollectives(peerFailed(members_, op, gone));
    }
  }
  const RankSet silent = mailbox_.silent(departed_);
  std::vector<std::shared_ptr<MessageOp>> detached;
  endMessages([&](const std::shared_ptr<MessageOp>& op) -> std::optional<Failure> {
    if (!lacks(*op, silent)) {
      return std::nullopt;
    }
    Failure failure = peerFailed(members_, *op, gone);
    if (auto sends = detachSends(op, departed_, copy_budget_)) {
      for (const Outgoing& message : sends->outgoing) {
        mailbox_.reads().endOffers(message.destination, messageId(sends->sequence, message.phase));
      }
      detached.push_back(std::move(sends));
    }
    return failure;
  });
  for (const std::shared_ptr<MessageOp>& each : detached) {
    awake_.insert(each->sequence);
    messages_.emplace(each->sequence, each);
  }
  detached_ += detached.size();
}

void Scheduler::finish(const std::shared_ptr<CollectiveOp>& op,
                       const std::optional<Failure>& failure) {
  endTasks(*op, failure);
  conclude(op, failure);
}

void Scheduler::finish(const std::shared_ptr<MessageOp>& op,
                       const std::optional<Failure>& failure) {
  std::optional<Failure> why = failure;
  if (auto deferred = deferred_failures_.extract(op->sequence)) {
    why = std::move(deferred.mapped());
  }
  endTasks(*op, why);
  if (op->role == OpRole::kDetached) {
    --detached_;
    if (failure && failure->cause == Cause::kMismatch) {
      mailbox_.lateMismatches().add({op->sequence, *failure});
    }
    return;
  }
  services_ -= op->role == OpRole::kService ? 1 : 0;
  if (failure && failure->cause == Cause::kMismatch) {
    noteTold(op->sequence);
  }
  conclude(op, why);
}

// The peers of its messages hear why they are canceled.
void Scheduler::endTasks(Op& op, const std::optional<Failure>& failure) {
  const CancelScope scope = mailbox_.cancelScope(failure);
  op.tasks.clear();
}

void Scheduler::conclude(std::shared_ptr<Op> op, const std::optional<Failure>& failure) {
  if (failure) {
    op->failure = failure;
    op->error = std::make_exception_ptr(errorOf(members_, *op, *failure));
  }
  finished_.push_back(std::move(op));
}

void Scheduler::noteTold(uint64_t sequence) {
  told_of_.push_back(sequence);
  if (told_of_.size() > kToldOf) {
    told_of_.pop_front();
  }
}

void Scheduler::failCollectives(const Failure& failure) {
  broken_ = publishFirst(segment_.groupFailure(), {failure, collectives_.front()->sequence});
  if (bridge_) {
    bridge_->tell(*broken_);
  }
  wakeups_.addPeers(members_.rank);
  wakeups_.notifyAll();
  for (const auto& op : collectives_) {
    finish(op, broken_->sequence < op->sequence ? inheritedFrom(*broken_) : broken_->failure);
  }
  collectives_.clear();
}

void Scheduler::sayGoodbye() {
  links_.sayGoodbye();
  if (bridge_) {
    try {
      bridge_->leave(Deadline::in(kLingering));
    } catch (const Failure&) {
      // Either a peer has sent what cannot be, or a rank has died and this Open MPI does not
      // survive that. The other ranks notice by themselves that this rank has ended.
    }
  }
}

// The interval grows by an eighth, so that what arrives is noticed late by at most an eighth of the
// wait for it. Measured with puts of 1 MiB at 1 Gbit/s: 97 % of the wire's rate, and 83 % when
// sleeps were as long as the wait.
std::chrono::nanoseconds Scheduler::pollInterval() {
  const std::chrono::microseconds now = poll_interval_;
  poll_interval_ = std::min(poll_interval_ + poll_interval_ / 8, tuning::kLongestPoll);
  return now;
}

void Scheduler::leave(const Failure& failure) {
  mailbox_.fallSilent();
  for (const auto& op : collectives_) {
    finish(op, failure);
  }
  collectives_.clear();
  failAll(failure);
}

void Scheduler::failAll(const Failure& failure) {
  if (!collectives_.empty()) {
    failCollectives(failure);
  }
  for (const auto& [number, op] : messages_) {
    finish(op, failure);
  }
  messages_.clear();
  wakeups_.notifyAll();
}

}  // namespace bluefog
