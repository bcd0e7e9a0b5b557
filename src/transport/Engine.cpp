#include "transport/Engine.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "transport/Verdict.hpp"

namespace bluefog {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Clock = Deadline::Clock;

// How long a waiting thread looks again before it sleeps, where each rank has a core of its own.
constexpr microseconds kSpin{200};
// How often, where they share cores: each time the others may run first.
constexpr int kYields = 8;
// Between looks at the deadlines and the peers' lives, while operations wait.
constexpr milliseconds kShortestSlice{2};
constexpr milliseconds kLongestSlice{50};

int usableCores() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Engine::Engine(Segment segment, Membership members, Links links, std::function<void()> interrupt)
    : members_(std::move(members)),
      segment_(std::move(segment)),
      links_(std::move(links)),
      board_(segment_, members_),
      mailbox_(segment_, members_),
      interrupt_(std::move(interrupt)),
      spin_(usableCores() >= members_.size ? kSpin : microseconds(0)),
      owner_(::getpid()) {}

Engine::~Engine() {
  if (::getpid() == owner_) {
    shutdown();
  } else if (thread_.joinable()) {
    thread_.detach();  // a forked child has the object, but not the thread
  }
}

void Engine::post(const std::shared_ptr<Op>& op, Who who) {
  Ops dropped;  // destroyed after the lock is free
  {
    const std::lock_guard lock(mutex_);
    op->sequence = op->kind == Op::Kind::kCollective ? ++collectives_issued_ : ++messages_issued_;
    if (stopped_) {
      throw errorOf(members_, *op, *stopped_);
    }
    incoming_.push_back(op);
    has_incoming_.store(true, std::memory_order_release);
    ++pending_;
    dropped.swap(buried_);
    if (who == Who::kEngine) {
      startThread();
      work_.notify_one();
    }
  }
  if (who == Who::kEngine) {
    fenceBeforeRinging();
    segment_.bell(members_.rank).ring();
  }
}

bool Engine::wait(const Op& op, Deadline limit) {
  Ops dropped;
  std::unique_lock lock(mutex_);
  ++waiting_;
  const auto leave = [&] {
    --waiting_;
    dropped.swap(buried_);
    if (pending_ > 0 && waiting_ == 0) {
      startThread();
      work_.notify_one();
    }
  };
  Deadline next_interrupt = Deadline::in(kLongestSlice);
  while (!op.done.load(std::memory_order_acquire)) {
    if (limit.passed()) {
      leave();
      return false;
    }
    if (driving_) {
      // The driver may sleep, and not know of this operation yet.
      fenceBeforeRinging();
      segment_.bell(members_.rank).ring();
      changed_.wait_for(lock, std::min<std::chrono::nanoseconds>(kLongestSlice, limit.left()));
    } else {
      driveAndConclude(lock, Who::kCaller);
    }
    if (interrupt_ && next_interrupt.passed()) {
      next_interrupt = Deadline::in(kLongestSlice);
      lock.unlock();
      try {
        interrupt_();
      } catch (...) {
        lock.lock();
        leave();
        throw;
      }
      lock.lock();
    }
  }
  leave();
  return true;
}

void Engine::stop(const Failure& failure) {
  std::unique_lock lock(mutex_);
  if (!stopped_) {
    stopped_ = failure;
    stop_requested_.store(true, std::memory_order_release);
  }
  ++waiting_;
  while (pending_ > 0) {
    if (driving_) {
      segment_.bell(members_.rank).ring();
      changed_.wait_for(lock, kShortestSlice);
    } else {
      driveAndConclude(lock, Who::kEngine);
    }
  }
  --waiting_;
}

void Engine::shutdown() {
  if (::getpid() != owner_) {
    return;  // a forked child: the group is its parent's
  }
  {
    std::unique_lock lock(mutex_);
    if (leaving_) {
      return;
    }
    if (pending_ > 0 && !driving_) {
      driveAndConclude(lock, Who::kEngine);  // what was just posted and can still go, goes
    }
  }
  stop(aborted("the process group was destroyed"));
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
    work_.notify_one();
  }
  segment_.bell(members_.rank).ring();
  if (thread_.joinable()) {
    thread_.join();
  }
  links_.sayGoodbye();
  buried_.clear();
}

void Engine::driveAndConclude(std::unique_lock<std::mutex>& lock, Who who) {
  driving_ = true;
  lock.unlock();
  const Ops ended = drive(who);
  lock.lock();
  driving_ = false;
  pending_ -= ended.size();
  for (const auto& op : ended) {
    op->done.store(true, std::memory_order_release);
  }
  if (waiting_ > (who == Who::kCaller ? 1 : 0)) {
    changed_.notify_all();
  }
  if (ended.empty()) {
    return;
  }
  lock.unlock();
  // May run anything, operations on this group too: outside of the lock and of the driver's role.
  for (const auto& op : ended) {
    if (op->finished) {
      op->finished(*op);
    }
  }
  lock.lock();
  buried_.insert(buried_.end(), ended.begin(), ended.end());
}

// Passes until something has finished, or nothing can move and this thread may not sleep, or it
// has slept long enough to look after its caller's business.
Engine::Ops Engine::drive(Who who) {
  Clock::time_point now = Clock::now();
  const Clock::time_point enough = now + kLongestSlice;
  Clock::time_point spin_end = now + spin_;
  int yields = 0;
  while (true) {
    const bool moved = pass();
    if (!finished_.empty()) {
      break;
    }
    now = Clock::now();
    if (now >= next_tick_) {
      tick(now);
    }
    if (moved) {
      slice_ = kShortestSlice;
      spin_end = now + spin_;
      yields = 0;
    } else if (who == Who::kEngine || (rest(now, spin_end, yields) && now >= enough)) {
      break;
    }
  }
  return std::exchange(finished_, {});
}

// Between two looks at an operation that could not move: spins, then yields, then sleeps. True when
// it slept.
bool Engine::rest(Clock::time_point now, Clock::time_point& spin_end, int& yields) {
  if (now < spin_end) {
    relax();
    return false;
  }
  if (spin_.count() == 0 && yields < kYields) {
    ++yields;
    ::sched_yield();
    return false;
  }
  Bell& bell = segment_.bell(members_.rank);
  const uint32_t ticket = bell.lieDown();
  drain_ = true;
  if (pass() || !finished_.empty()) {
    return false;
  }
  bell.sleep(ticket, slice_);
  drain_ = true;
  tick(Clock::now());
  return true;
}

void Engine::startThread() {
  if (thread_.joinable() || leaving_) {
    return;
  }
  // Signals are the Python thread's business: the new thread inherits a full mask.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_setname_np(thread_.native_handle(), "bluefog-engine");
}

void Engine::run() {
  Bell& bell = segment_.bell(members_.rank);
  std::unique_lock lock(mutex_);
  while (!leaving_) {
    if (pending_ == 0 || waiting_ > 0 || driving_) {
      work_.wait(lock);
      continue;
    }
    // Lies down before it looks: what comes after the look rings.
    const uint32_t ticket = bell.lieDown();
    drain_ = true;
    const size_t before = pending_;
    driveAndConclude(lock, Who::kEngine);
    if (pending_ != before || waiting_ > 0 || driving_ || leaving_) {
      continue;
    }
    const milliseconds slice = std::max(slice_, kShortestSlice);
    lock.unlock();
    bell.sleep(ticket, slice);
    lock.lock();
  }
}

bool Engine::pass() {
  bool moved = takeIncoming();
  if (stop_requested_.load(std::memory_order_acquire)) {
    failAll();
    return true;
  }
  moved |= stepCollectives();
  if (drain_ || !messages_.empty()) {
    drain_ = false;
    moved |= mailbox_.drain();
  }
  moved |= stepMessages();
  return moved;
}

bool Engine::takeIncoming() {
  if (!has_incoming_.load(std::memory_order_acquire)) {
    return false;
  }
  Ops taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(incoming_);
    has_incoming_.store(false, std::memory_order_release);
  }
  for (auto& op : taken) {
    if (op->kind == Op::Kind::kCollective) {
      collectives_.push_back(std::move(op));
    } else if (const std::optional<Failure> refusal = mailbox_.takeLateRefusal()) {
      finish(op, refusal);
    } else if (advance(op) != Step::kDone) {
      // That first step took its place in the lanes: in the order of the calls.
      messages_.push_back(std::move(op));
    }
  }
  return true;
}

bool Engine::stepCollectives() {
  bool moved = false;
  while (!collectives_.empty()) {
    if (!broken_) {
      broken_ = readVerdict(segment_.verdict());
    }
    if (broken_) {
      failCollectives(*broken_);
      return true;
    }
    Step step = Step::kBlocked;
    try {
      step = this->step(*collectives_.front());
    } catch (const Failure& failure) {
      failCollectives(failure);
      return true;
    } catch (const std::exception& error) {
      failCollectives(aborted(error.what()));
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

bool Engine::stepMessages() {
  bool moved = false;
  for (auto it = messages_.begin(); it != messages_.end();) {
    const Step step = advance(*it);
    moved |= step != Step::kBlocked;
    it = step == Step::kDone ? messages_.erase(it) : std::next(it);
  }
  return moved;
}

Engine::Step Engine::step(Op& op) {
  Step result = Step::kDone;
  bool moved = false;
  for (Script& script : op.scripts) {
    if (script.done()) {
      continue;
    }
    moved |= script.advance();
    if (!script.done()) {
      result = Step::kBlocked;
    }
  }
  if (result == Step::kDone && op.epilogue) {
    op.epilogue();
  }
  return result == Step::kBlocked && moved ? Step::kMoved : result;
}

Engine::Step Engine::advance(const std::shared_ptr<Op>& op) {
  try {
    const Step result = step(*op);
    if (result == Step::kDone) {
      finish(op, std::nullopt);
    }
    return result;
  } catch (const Failure& failure) {
    finish(op, failure);
  } catch (const std::exception& error) {
    finish(op, aborted(error.what()));
  }
  return Step::kDone;
}

void Engine::tick(Clock::time_point now) {
  slice_ = std::min(std::max(slice_ * 2, kShortestSlice), kLongestSlice);
  next_tick_ = now + kLongestSlice;
  watchDeadlines(now);
  watchPeers();
}

namespace {

std::vector<int> missingFor(const Op& op) {
  std::vector<int> ranks;
  for (const Script& script : op.scripts) {
    if (!script.done() && script.waiting() != nullptr) {
      const std::vector<int> more = script.waiting()->missing();
      ranks.insert(ranks.end(), more.begin(), more.end());
    }
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace

void Engine::watchDeadlines(Clock::time_point now) {
  for (const auto& op : collectives_) {
    if (op->deadline.passed(now)) {
      // The front one holds up those behind it.
      failCollectives(timedOut(members_, *op, missingFor(*collectives_.front())));
      break;
    }
  }
  for (auto it = messages_.begin(); it != messages_.end();) {
    if ((*it)->deadline.passed(now)) {
      finish(*it, timedOut(members_, **it, missingFor(**it)));
      it = messages_.erase(it);
    } else {
      ++it;
    }
  }
}

void Engine::watchPeers() {
  const std::vector<Departure>& gone = links_.look();
  if (gone.size() != departures_seen_) {
    // What they published before they went is still there: one more pass, then the next tick.
    departures_seen_ = gone.size();
    slice_ = milliseconds(0);
    next_tick_ = {};
    return;
  }
  if (gone.empty()) {
    return;
  }
  if (!collectives_.empty()) {
    if (const std::optional<Failure> failure = needsDeparted(*collectives_.front(), gone)) {
      failCollectives(*failure);
    }
  }
  for (auto it = messages_.begin(); it != messages_.end();) {
    if (const std::optional<Failure> failure = needsDeparted(**it, gone)) {
      finish(*it, failure);
      it = messages_.erase(it);
    } else {
      ++it;
    }
  }
}

std::optional<Failure> Engine::needsDeparted(const Op& op,
                                             const std::vector<Departure>& gone) const {
  const auto is_gone = [&gone](int rank) {
    return std::any_of(gone.begin(), gone.end(),
                       [rank](const Departure& departure) { return departure.rank == rank; });
  };
  bool lost = false;
  for (const Script& script : op.scripts) {
    const Condition* waiting = script.done() ? nullptr : script.waiting();
    if (waiting == nullptr) {
      continue;
    }
    const std::vector<int> missing = waiting->missing();
    lost |= waiting->anyWillDo() && !missing.empty()
                ? std::all_of(missing.begin(), missing.end(), is_gone)
                : std::any_of(missing.begin(), missing.end(), is_gone);
  }
  if (!lost) {
    return std::nullopt;
  }
  // A rank that left may have left because another one died: all the dead are named.
  const std::vector<int> missing = missingFor(op);
  Failure failure{Cause::kPeerFailed, {}, ""};
  for (const Departure& departure : gone) {
    if (departure.how == Departure::How::kDied ||
        std::count(missing.begin(), missing.end(), departure.rank) > 0) {
      const int who = members_.global(departure.rank);
      failure.ranks.push_back(who);
      failure.reason += (failure.reason.empty() ? "" : "; ") + departure.describe(who);
    }
  }
  std::sort(failure.ranks.begin(), failure.ranks.end());
  return failure;
}

void Engine::finish(const std::shared_ptr<Op>& op, const std::optional<Failure>& failure) {
  op->scripts.clear();
  if (failure) {
    op->error = std::make_exception_ptr(errorOf(members_, *op, *failure));
  }
  finished_.push_back(op);
}

void Engine::failCollectives(const Failure& failure) {
  broken_ = agreeOn(segment_.verdict(), failure);
  fenceBeforeRinging();
  for (int peer = 0; peer < members_.size; ++peer) {
    segment_.bell(peer).ring();
  }
  for (const auto& op : collectives_) {
    finish(op, broken_);
  }
  collectives_.clear();
}

void Engine::failAll() {
  Failure failure;
  {
    const std::lock_guard lock(mutex_);
    failure = *stopped_;
  }
  for (const auto& op : collectives_) {
    finish(op, failure);
  }
  for (const auto& op : messages_) {
    finish(op, failure);
  }
  collectives_.clear();
  messages_.clear();
}

}  // namespace bluefog
