#include "transport/engine/Engine.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/Cores.hpp"
#include "transport/tuning/Backoff.hpp"
#include "transport/tuning/Tuning.hpp"

namespace bluefog {
namespace {

using std::chrono::milliseconds;
using Clock = Deadline::Clock;

// A thread in wait() looks after its caller's business at this interval: a limit, Ctrl-C.
constexpr milliseconds kSlice{50};
// A thread that stops the engine tries again at this interval to become the driver.
constexpr milliseconds kStopAgain{2};
// A wait() must have lasted this long before it counts as blocked. By then it has asked whether
// something else in the program may help.
constexpr milliseconds kSettled{150};

}  // namespace

Engine::Engine(Segments segments, Membership members, Links links,
               std::unique_ptr<RemoteTransport> transport, Interrupt interrupt)
    : members_(std::move(members)),
      segments_(std::make_shared<const Segments>(std::move(segments))),
      segment_(segments_->shared()),
      scheduler_(segments_, members_, std::move(links), std::move(transport)),
      core_balancer_(segment_.coreMap(), members_.rank, members_.size, ranksHere()),
      interrupt_(std::move(interrupt)),
      own_core_(Cores::usable().count() >= ranksHere()) {
  if (scheduler_.spansHosts()) {
    const std::lock_guard lock(mutex_);
    ensureThread();
  }
}

int Engine::ranksHere() const {
  return static_cast<int>(segments_->hosts().here().size());
}

std::shared_ptr<SharedHeap> Engine::makeHeap() const {
  return ranksHere() > 1 ? SharedHeap::make(segment_, members_.rank) : nullptr;
}

std::vector<Process> Engine::processes() const {
  std::vector<Process> processes;
  for (int rank = 0; rank < members_.size; ++rank) {
    processes.push_back(scheduler_.processOf(rank));
  }
  return processes;
}

bool Engine::prefersOffers(size_t bytes, ptrdiff_t readers) const {
  return readers > 0 && bytes > Lane::payload() &&
         (readers > 1 || !own_core_ || bytes >= tuning::kOfferToOneReader);
}

std::shared_ptr<Engine> Engine::make(Segments segments, Membership members, Links links,
                                     std::unique_ptr<RemoteTransport> transport,
                                     Interrupt interrupt) {
  auto made = std::make_unique<Engine>(std::move(segments), std::move(members), std::move(links),
                                       std::move(transport), std::move(interrupt));
  return {made.release(), [](Engine* engine) {
            // In a forked child the condition variables would wait for threads that do not exist
            // there.
            if (!engine->isForked()) {
              std::default_delete<Engine>()(engine);
            }
          }};
}

Engine::~Engine() {
  shutdown();
}

void Engine::post(std::shared_ptr<Op> op, Who who) {
  DeferredRelease dropped;  // released after the lock is free
  op->issued = Clock::now();
  {
    const std::lock_guard lock(mutex_);
    if (who != Who::kCaller && !stopped_) {
      ensureThread();  // before anything is queued, because this may throw
    }
    MessageOp* message = op->asMessage();
    op->sequence = message == nullptr ? ++collectives_issued_ : ++messages_issued_;
    if (message != nullptr && message->counter && message->number == 0) {
      message->number = calls_.next(*message->counter);
    }
    if (stopped_) {
      throw errorOf(members_, *op, *stopped_);
    }
    const OpRole role = op->role;
    incoming_.push_back(std::move(op));
    has_incoming_.store(true, std::memory_order_release);
    ++pending_;
    if (role == OpRole::kService) {
      ++services_;  // may be posted by a thread that must not release anything
    } else {
      dropped.ops.swap(deferred_release_.ops);
    }
    if (who != Who::kCaller) {
      work_.notify_one();
    }
  }
  if (who == Who::kEngine) {
    wakeDriver();
  }
}

uint64_t Engine::callsMade() {
  const std::lock_guard lock(mutex_);
  return calls_.highest();
}

std::shared_ptr<Op> Engine::align(uint64_t number) {
  {
    const std::lock_guard lock(mutex_);
    calls_.align(number);
  }
  auto op = std::make_shared<MessageOp>(Signature{.kind = OpKind::kService}, Deadline::never(),
                                        OpRole::kService);
  op->epilogue = [this, number] { scheduler_.mailbox().calls().align(number); };
  post(op, Who::kCaller);
  return op;
}

Engine::Attempt Engine::tryFastPath(FastPath& exchange) {
  DeferredRelease dropped;  // released after the lock is free
  std::unique_lock lock(mutex_);
  if (driving_ || waiting_ > 0 || pending_ > 0 || owes_ || stopped_ || !scheduler_.isQuiet() ||
      !exchange.maySend(scheduler_.mailbox())) {
    return {};
  }
  Attempt attempt{++messages_issued_, calls_.next(exchange.counter()), nullptr};
  driving_ = true;
  lock.unlock();
  const auto stopDriving = [&] {
    lock.lock();
    driving_ = false;
    yieldToOthers();
    dropped.ops.swap(deferred_release_.ops);
  };
  try {
    if (runFastPath(exchange, attempt)) {
      scheduler_.noteCall(exchange.counter(), attempt.number);
    } else {
      attempt.op = exchange.makeOp();
    }
  } catch (...) {  // there is no memory
    stopDriving();
    throw;
  }
  stopDriving();
  if (attempt.op) {
    attempt.op->sequence = attempt.sequence;
    attempt.op->number = attempt.number;
    attempt.op->issued = Clock::now();
    // It goes before what other threads have posted meanwhile, because it has sent before them.
    incoming_.insert(incoming_.begin(), attempt.op);
    has_incoming_.store(true, std::memory_order_release);
    ++pending_;
  }
  return attempt;
}

bool Engine::runFastPath(FastPath& exchange, const Attempt& attempt) {
  exchange.send(scheduler_.mailbox(), attempt.sequence, attempt.number);
  scheduler_.notifyPeers();
  const bool is_done = exchange.receive(scheduler_.mailbox()) || awaitFastPath(exchange);
  scheduler_.notifyPeers();
  return is_done;
}

// Returns whether all messages came before this rank had to look after something else: posted
// operations, its peers, or deadlines.
bool Engine::awaitFastPath(FastPath& exchange) {
  Clock::time_point now = Clock::now();
  const Clock::time_point enough = now + tuning::kFastPathLimit;
  Backoff backoff(own_core_, now);
  EventCount& event_count = segment_.eventCount(members_.rank);
  bool is_tired = false;
  while (true) {
    const uint32_t ticket = is_tired ? event_count.prepareWait() : 0;
    if (exchange.receive(scheduler_.mailbox())) {
      return true;
    }
    if (has_incoming_.load(std::memory_order_acquire) || now >= enough) {
      return false;
    }
    if (is_tired) {
      event_count.wait(ticket, enough - now);
    }
    now = Clock::now();
    is_tired = !backoff.pause(now);
  }
}

// Hands driving over to threads that came while this thread drove.
void Engine::yieldToOthers() {
  if (waiting_ > 0) {
    changed_.notify_all();
  } else if (hasWork()) {
    rouseThread();
  }
}

bool Engine::wait(const Op& op, Deadline limit, const std::function<bool()>& enough) {
  DeferredRelease dropped;
  std::unique_lock lock(mutex_);
  ++waiting_;
  const auto leave = [&] {
    --waiting_;
    if (!driving_) {
      scheduler_.clearBlocked();
    }
    dropped.ops.swap(deferred_release_.ops);
    if (hasWork() && waiting_ == 0) {
      rouseThread();
    }
  };
  const Deadline settled = Deadline::in(kSettled);
  const bool may_stand = limit.isNever();
  bool is_helped = false;
  Deadline next_interrupt = Deadline::in(kSlice);
  while (!op.hasEnded()) {
    if (limit.passed() || (enough && enough())) {
      leave();
      return false;
    }
    if (driving_) {
      wakeDriver();
      changed_.wait_for(lock, std::min<std::chrono::nanoseconds>(kSlice, limit.left()));
    } else {
      is_blocked_ = may_stand && settled.passed() && !is_helped && calling_back_ == 0 &&
                    to_call_back_.empty();
      driveAndConclude(lock, Who::kCaller);
    }
    if (interrupt_ && next_interrupt.passed()) {
      next_interrupt = Deadline::in(kSlice);
      lock.unlock();
      try {
        is_helped = interrupt_();
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
  while (pending_ > 0 || driving_) {
    if (driving_) {
      wakeDriver();
      changed_.wait_for(lock, kStopAgain);
    } else {
      driveAndConclude(lock, Who::kEngine);
    }
  }
  --waiting_;
  // Nobody drives any more. The peers must hear the goodbye now, because this rank's threads may be
  // in a callback for long, and the callback may wait for one of the peers.
  if (!std::exchange(goodbye_said_, true)) {
    scheduler_.sayGoodbye();
  }
}

void Engine::shutdown() {
  if (isForked()) {
    return;  // the group is the parent's
  }
  {
    std::unique_lock lock(mutex_);
    if (isOwnThread()) {
      // This is inside a callback, and the engine's thread cannot wait for its own end. The group's
      // owner will shut down.
      lock.unlock();
      stop(aborted("the process group was destroyed"));
      return;
    }
    if (presence_ != Presence::kHere) {
      // This is inside a callback again, of an operation that shutdown() itself ended.
      const bool inside = leaver_ == std::this_thread::get_id();
      changed_.wait(lock, [&] { return inside || presence_ == Presence::kLeft; });
      return;
    }
    presence_ = Presence::kLeaving;
    leaver_ = std::this_thread::get_id();
    if (pending_ > 0 && !driving_) {
      ++waiting_;
      driveAndConclude(lock, Who::kEngine);  // what was just posted may still go
      --waiting_;
    }
  }
  stop(aborted("the process group was destroyed"));
  {
    const std::lock_guard lock(mutex_);
    end_ = true;  // no thread is started after this
    work_.notify_all();
  }
  wakeDriver();
  for (std::thread& thread : threads_) {
    thread.join();
  }
  DeferredRelease dropped;
  std::unique_lock lock(mutex_);
  callBack(lock);
  dropped.ops.swap(deferred_release_.ops);
  presence_ = Presence::kLeft;
  changed_.notify_all();
}

bool Engine::isBusy() {
  const std::lock_guard lock(mutex_);
  return pending_ > services_ || calling_back_ > 0 || !to_call_back_.empty();
}

void Engine::wakeDriver() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  segment_.eventCount(members_.rank).notify();
}

void Engine::driveAndConclude(std::unique_lock<std::mutex>& lock, Who who) {
  driving_ = true;
  lock.unlock();
  Ops ended;
  try {
    ended = drive(who);
  } catch (const Failure& failure) {  // a peer has sent what cannot be
    scheduler_.failAll(failure);
    ended = scheduler_.takeFinished();
  } catch (const std::exception& error) {  // there is no memory
    scheduler_.failAll(failedHere(members_, error));
    ended = scheduler_.takeFinished();
  }
  lock.lock();
  driving_ = false;
  pending_ -= ended.size();
  owes_ = scheduler_.owesAnything();
  const Clock::time_point now = Clock::now();
  for (const auto& op : ended) {
    services_ -= op->role == OpRole::kService ? 1 : 0;
    op->ended = now;
    op->done.store(true, std::memory_order_release);
  }
  if (waiting_ > (who == Who::kCaller ? 1 : 0)) {
    changed_.notify_all();
  }
  if (ended.empty()) {
    return;
  }
  lock.unlock();
  const auto calling_at = std::stable_partition(
      ended.begin(), ended.end(),
      [](const std::shared_ptr<Op>& op) { return !op->settleCallingBack(false); });
  const Ops calling(calling_at, ended.end());
  ended.erase(calling_at, ended.end());
  for (const auto& op : ended) {
    if (op->finished) {
      op->finished(*op);
    }
  }
  std::erase_if(ended, [](const std::shared_ptr<Op>& op) {
    const bool is_service = op->role == OpRole::kService;
    if (is_service) {
      op->release();  // a service has no tensors
    }
    return is_service;
  });
  lock.lock();
  deferred_release_.ops.insert(deferred_release_.ops.end(), ended.begin(), ended.end());
  if (!calling.empty()) {
    to_call_back_.insert(to_call_back_.end(), calling.begin(), calling.end());
    if (isOwnThread() || !rouseThread()) {
      callBack(lock);
    }
  }
}

// Makes passes until something has finished, or kSlice is over, or nothing can move and this thread
// may not sleep here.
Engine::Ops Engine::drive(Who who) {
  Clock::time_point now = Clock::now();
  const Clock::time_point enough = now + kSlice;
  Backoff backoff(own_core_, now);
  if (who == Who::kEngine) {
    scheduler_.lookIntoLanes();
  }
  if (who == Who::kEngine || !is_blocked_) {
    scheduler_.clearBlocked();
  }
  while (true) {
    const bool moved = progress();
    if (scheduler_.anyFinished()) {
      break;
    }
    now = Clock::now();
    if (who == Who::kCaller) {
      core_balancer_.look(now);
    }
    // The engine's own thread has slept just before this call, hence its tick.
    if (now >= scheduler_.nextTick() ||
        (!moved && who == Who::kEngine && !scheduler_.spansHosts())) {
      scheduler_.tick(now);
    }
    if (moved) {
      backoff.reset(now);
    } else if (who == Who::kEngine) {
      break;
    } else if (!backoff.pause(now)) {
      sleepUnlessMoved();
    }
    if (who == Who::kCaller && now >= enough) {
      break;
    }
  }
  return scheduler_.takeFinished();
}

void Engine::sleepUnlessMoved() {
  EventCount& event_count = segment_.eventCount(members_.rank);
  const uint32_t ticket = event_count.prepareWait();
  scheduler_.lookIntoLanes();
  if (progress() || scheduler_.anyFinished()) {
    return;
  }
  if (is_blocked_) {
    scheduler_.publishBlocked();
  }
  event_count.wait(ticket, sleepTime());
  scheduler_.lookIntoLanes();
  const Clock::time_point now = Clock::now();
  if (!scheduler_.spansHosts() || now >= scheduler_.nextTick()) {
    scheduler_.tick(now);
  }
  if (is_blocked_) {
    scheduler_.watchSuspect(now);
  }
}

std::chrono::nanoseconds Engine::sleepTime() {
  const std::chrono::nanoseconds longest = scheduler_.sleepTime();
  return scheduler_.spansHosts() ? std::min(longest, scheduler_.pollInterval()) : longest;
}

bool Engine::progress() {
  const bool taken = takeIncoming();
  if (stop_requested_.load(std::memory_order_acquire)) {
    Failure failure;
    {
      const std::lock_guard lock(mutex_);
      failure = *stopped_;
    }
    scheduler_.leave(failure);
    return scheduler_.anyFinished();
  }
  return scheduler_.progress() || taken;
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
    scheduler_.add(std::move(op));
  }
  return true;
}

}  // namespace bluefog
