#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/OwnProcess.hpp"
#include "transport/engine/Scheduler.hpp"
#include "transport/hosts/RemoteTransport.hpp"
#include "transport/memory/Segments.hpp"
#include "transport/memory/SharedHeap.hpp"
#include "transport/messages/FastPath.hpp"
#include "transport/operations/Failure.hpp"
#include "transport/operations/MessageOp.hpp"
#include "transport/operations/Op.hpp"
#include "transport/tuning/CoreBalancer.hpp"

namespace bluefog {

// An Engine runs the posted operations of one group, and watches their deadlines and the peers'
// lives. It owns the group's Scheduler, its links to the peers and its own threads, and shares
// ownership of the segments.
//
// One thread at a time drives, which means that it steps operations. A thread in wait() drives when
// nobody else does, so that a blocking collective pays for no thread switch. The engine's own
// thread drives what was posted and is not waited for. It starts with the first such operation and
// sleeps on the rank's event count. The callback at the end of an operation may wait for other
// operations of this group. So while one of the engine's threads runs a callback, another one takes
// its place.
//
// Thread safety: any thread may call any method but board(), returns() and mailbox(), whose results
// belong to the driving thread.
class Engine {
 public:
  // Interrupt is called now and then by waiting threads, outside of all locks, and may throw. It
  // returns whether something else in the program may bring about what they wait for, such as
  // another thread or another group.
  using Interrupt = std::function<bool()>;

  // Use make() instead, because a forked child must not destroy an engine.
  Engine(Segments segments, Membership members, Links links,
         std::unique_ptr<RemoteTransport> transport, Interrupt interrupt);
  // `transport` is null if all ranks are on one host.
  static std::shared_ptr<Engine> make(Segments segments, Membership members, Links links,
                                      std::unique_ptr<RemoteTransport> transport,
                                      Interrupt interrupt);
  ~Engine();
  // Returns whether this process was forked from the one that made the engine. It then has the
  // object, but neither the memory nor the threads, and no other method may be called.
  bool isForked() const { return process_.isForked(); }

  // The algorithms move bytes with these three. returns() is the second board, for what is sent
  // back in answer to the first one's frames.
  Board& board() { return scheduler_.board(); }
  Board& returns() { return scheduler_.returns(); }
  Mailbox& mailbox() { return scheduler_.mailbox(); }
  // Makes the heap for results that ranks of this host may read. Returns null if no other rank is
  // on this host, or the segment has no heaps.
  std::shared_ptr<SharedHeap> makeHeap() const;
  // Returns whether a message is better read in this rank's heap than sent over lanes, if that many
  // ranks of this host receive it.
  bool prefersOffers(size_t bytes, ptrdiff_t readers) const;
  // Returns the process of each rank; see Links::processOf().
  std::vector<Process> processes() const;
  const std::shared_ptr<const Segments>& segments() const { return segments_; }
  const Membership& members() const { return members_; }
  const HostMap& hosts() const { return segments_->hosts(); }

  // A Who is the thread that drives a posted operation: the calling thread, which waits for it
  // next, or the engine's own thread, which is woken now (kEngine) or not (kEngineSoon).
  enum class Who { kCaller, kEngine, kEngineSoon };
  // Issues the operation. Throws its error if the engine has stopped, or std::runtime_error if no
  // thread can be started. With Who::kEngineSoon the thread finds the operation when it looks next,
  // at most some 50 ms later, if other operations are pending: waking a thread takes longer than
  // everything else here.
  void post(std::shared_ptr<Op> op, Who who);
  // An Attempt is what tryFastPath() has done.
  struct Attempt {
    uint64_t sequence = 0;          // 0 if nothing was done
    uint64_t number = 0;            // number of the call, as in MessageOp
    std::shared_ptr<MessageOp> op;  // what is left to do; null if nothing is
  };
  // Runs a small exchange in this thread, unless something is in the way, in which case nothing is
  // done. If its peers keep it waiting, the rest is posted as an operation, which the caller must
  // wait for.
  Attempt tryFastPath(FastPath& exchange);
  // Returns the highest number that a neighbor call of this rank has had, by any counter.
  uint64_t callsMade();
  // Makes all counters continue from `number`. Returns an operation to wait for: once it has ended,
  // messages of calls up to that number are dropped.
  std::shared_ptr<Op> align(uint64_t number);
  // Waits for the operation, and drives if nobody does. Returns false if the limit passed first, or
  // if `enough`, which is asked now and then, returned true. It throws what Interrupt throws, but
  // never the operation's error.
  bool wait(const Op& op, Deadline limit, const std::function<bool()>& enough = nullptr);
  // Leaves the group: fails everything that is pending, and everything posted later, with
  // `failure`, and says goodbye to the peers. It never waits for a peer, but waits up to two
  // seconds for what goes to other hosts.
  void stop(const Failure& failure);
  bool hasStopped() const { return stop_requested_.load(std::memory_order_acquire); }
  // Stops the engine and ends its threads. Inside a callback on one of these threads it only stops
  // the engine.
  void shutdown();
  // Returns whether an operation of the program is pending, or a callback is due or running.
  bool isBusy();

 private:
  using Ops = Scheduler::Ops;

  // DeferredRelease keeps finished operations until a caller's thread releases them. Dropping the
  // last reference of a tensor may need the GIL, which the engine's thread must never wait for.
  struct DeferredRelease {
    Ops ops;

    DeferredRelease() = default;
    DeferredRelease(const DeferredRelease&) = delete;
    DeferredRelease& operator=(const DeferredRelease&) = delete;
    ~DeferredRelease() {
      for (const auto& op : ops) {
        op->release();
      }
    }
  };

  void run();
  bool hasWork() const { return pending_ > 0 || owes_; }
  // Makes sure that a thread exists which drives what nobody waits for, and runs callbacks. Throws
  // std::runtime_error if none can be started.
  void ensureThread();
  // Has that thread look for work. Returns false if there is none.
  bool rouseThread();
  bool isOwnThread() const;
  int ranksHere() const;
  // Wakes the driver, which may sleep and not know what was posted.
  void wakeDriver();
  // The calling thread may sleep in it, but only with Who::kCaller. The engine's own thread must
  // not, so that a caller can drive meanwhile.
  Ops drive(Who who);
  void driveAndConclude(std::unique_lock<std::mutex>& lock, Who who);
  void callBack(std::unique_lock<std::mutex>& lock);
  bool runFastPath(FastPath& exchange, const Attempt& attempt);
  bool awaitFastPath(FastPath& exchange);
  void yieldToOthers();
  void sleepUnlessMoved();
  // Returns how long the driver may sleep. Where ranks are on other hosts it is short, since
  // nothing wakes this rank for what they send.
  std::chrono::nanoseconds sleepTime();

  bool progress();
  bool takeIncoming();

  const Membership members_;
  const std::shared_ptr<const Segments> segments_;
  const Segment& segment_;      // the segment of this host
  Scheduler scheduler_;         // used by the driving thread
  CoreBalancer core_balancer_;  // used by a caller that drives
  const Interrupt interrupt_;
  const bool own_core_;  // there is a core for each rank of this host
  const OwnProcess process_;

  std::mutex mutex_;
  std::condition_variable changed_;  // wakes wait(): something has finished, or nobody drives
  std::condition_variable work_;     // wakes the engine's threads
  bool driving_ = false;
  int waiting_ = 0;          // threads in wait()
  bool is_blocked_ = false;  // the driving thread's program can do nothing but wait
  Ops to_call_back_;         // operations that have ended and whose callbacks are due
  // Operations that were posted and have not ended.
  size_t pending_ = 0;
  size_t services_ = 0;  // how many of the pending ones are services
  bool owes_ = false;    // operations that have ended still owe something to peers
  Ops incoming_;
  std::atomic<bool> has_incoming_{false};
  uint64_t collectives_issued_ = 0;
  uint64_t messages_issued_ = 0;
  CallCounts calls_;  // numbers of the neighbor calls that were issued
  std::optional<Failure> stopped_;
  std::atomic<bool> stop_requested_{false};
  bool goodbye_said_ = false;
  enum class Presence { kHere, kLeaving, kLeft };
  Presence presence_ = Presence::kHere;
  std::thread::id leaver_;
  bool end_ = false;  // the engine's threads must end
  DeferredRelease deferred_release_;
  std::vector<std::thread> threads_;  // one, and one more for each that runs callbacks
  std::vector<std::thread::id> thread_ids_;
  std::thread::id on_duty_;  // the thread that drives, or sleeps on the event count
  size_t calling_back_ = 0;  // how many of the threads run callbacks
};

}  // namespace bluefog
