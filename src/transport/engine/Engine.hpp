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
#include "transport/operations/Op.hpp"
#include "transport/tuning/CoreBalancer.hpp"

namespace bluefog {

// Runs the posted operations of one group, watches their deadlines and the peers' lives.
//
// Whoever waits, helps: one thread at a time drives (steps operations), and a thread in wait()
// drives itself when nobody else does, so that a blocking collective pays no thread switch. The
// engine's own thread drives what was posted and not waited for; it starts with the first such
// operation and sleeps on the rank's event count. What an operation's end calls back may wait for
// others of this group: while a thread of the engine runs that, another one takes its place.
// post(), wait(), stop() and shutdown() may be called from any thread.
class Engine {
 public:
  // Called now and then by waiting threads, outside of all locks. May throw. Says whether something
  // else in the program may bring about what they wait for: another thread, another group.
  using Interrupt = std::function<bool()>;

  // By make(): a forked child must not destroy it.
  Engine(Segments segments, Membership members, Links links,
         std::unique_ptr<RemoteTransport> transport, Interrupt interrupt);
  // `transport`: where ranks are on other hosts.
  static std::shared_ptr<Engine> make(Segments segments, Membership members, Links links,
                                      std::unique_ptr<RemoteTransport> transport,
                                      Interrupt interrupt);
  ~Engine();
  // Whether this process is a child, forked later: it has the object, but not the memory nor the
  // threads, and no method may be called.
  bool isForked() const { return process_.isForked(); }

  // How the algorithms of algorithms/ move bytes.
  Board& board() { return scheduler_.board(); }
  // The second board, for what is sent back in answer to the first's frames.
  Board& returns() { return scheduler_.returns(); }
  Mailbox& mailbox() { return scheduler_.mailbox(); }
  // Where results lie that neighbours may read; null where none of them is on this host.
  std::shared_ptr<SharedHeap> makeHeap() const;
  // Whether a message that so many ranks of this host get had better be read there than from a
  // lane.
  bool prefersOffers(size_t bytes, ptrdiff_t readers) const;
  // Of each rank: see Links.
  std::vector<Process> processes() const;
  const std::shared_ptr<const Segments>& segments() const { return segments_; }
  const Membership& members() const { return members_; }
  const HostMap& hosts() const { return segments_->hosts(); }

  enum class Who { kCaller, kEngine, kEngineSoon };
  // Issues the operation. With Who::kCaller the engine's thread is not woken: the caller waits at
  // once. With Who::kEngineSoon the thread finds it when it looks next, some 50 ms later at most,
  // if other operations are pending: to wake a thread takes longer than all else here.
  void post(const std::shared_ptr<Op>& op, Who who);
  // Runs it in this thread, unless something is in the way: then nothing has been done. Where its
  // peers let it wait, the rest of it is posted as by post(), to be waited for.
  struct Attempt {
    uint64_t sequence = 0;   // 0: nothing was done
    uint64_t number = 0;     // as Op's
    std::shared_ptr<Op> op;  // what is left to do; null where nothing is
  };
  Attempt tryFastPath(FastPath& exchange);
  // The highest one, of all counters.
  uint64_t callsMade();
  // All counters go on from that number. What comes of calls before is dropped, once this has
  // ended.
  std::shared_ptr<Op> align(uint64_t number);
  // False when the limit passed first, or there was `enough`, which is asked now and then. Does not
  // throw the operation's error.
  bool wait(const Op& op, Deadline limit, const std::function<bool()>& enough = nullptr);
  // Leaves the group: fails what is pending, and everything posted later, with that failure, and
  // says goodbye. Never waits for a peer, but two seconds at most for what goes to other hosts.
  void stop(const Failure& failure);
  bool hasStopped() const { return stop_requested_.load(std::memory_order_acquire); }
  // Stops and ends the threads.
  void shutdown();
  // Whether it has anything to do, or to call back.
  bool isBusy();

 private:
  using Ops = Scheduler::Ops;

  // Finished operations, until a caller's thread releases them: dropping the last reference of a
  // tensor may need the GIL, which the engine's thread must never wait for.
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
  // A thread that drives what nobody waits for, and calls back. Throws where none can be started.
  void ensureThread();
  // Has it look. False where there is none.
  bool rouseThread();
  bool isOwnThread() const;
  int ranksHere() const;
  // The driver may sleep, and not know of what was posted.
  void wakeDriver();
  // The caller of drive() may sleep in it; the engine's own thread must not, so that a caller can
  // drive meanwhile.
  Ops drive(Who who);
  void driveAndConclude(std::unique_lock<std::mutex>& lock, Who who);
  void callBack(std::unique_lock<std::mutex>& lock);
  bool runFastPath(FastPath& exchange, const Attempt& attempt);
  bool awaitFastPath(FastPath& exchange);
  void yieldToOthers();
  void sleepUnlessMoved();
  // How long to sleep. Who has ranks elsewhere looks for what they send, since nothing wakes it.
  std::chrono::nanoseconds sleepTime();

  bool progress();
  bool takeIncoming();

  const Membership members_;
  const std::shared_ptr<const Segments> segments_;
  const Segment& segment_;      // of this host
  Scheduler scheduler_;         // the driving thread's
  CoreBalancer core_balancer_;  // of a caller that drives
  const Interrupt interrupt_;
  const bool own_core_;  // for each rank of this host
  const OwnProcess process_;

  std::mutex mutex_;
  std::condition_variable changed_;  // for threads in wait(): something finished, or nobody drives
  std::condition_variable work_;     // for the engine's threads
  bool driving_ = false;
  int waiting_ = 0;          // threads in wait()
  bool is_blocked_ = false;  // the driving thread can do nothing but wait
  Ops to_call_back_;         // ended
  size_t pending_ = 0;
  size_t services_ = 0;  // of them
  bool owes_ = false;    // something to peers, of operations that have ended
  Ops incoming_;
  std::atomic<bool> has_incoming_{false};
  uint64_t collectives_issued_ = 0;
  uint64_t messages_issued_ = 0;
  CallCounts calls_;  // of neighbors, that were issued
  std::optional<Failure> stopped_;
  std::atomic<bool> stop_requested_{false};
  bool goodbye_said_ = false;
  enum class Presence { kHere, kLeaving, kLeft };
  Presence presence_ = Presence::kHere;
  std::thread::id leaver_;
  bool end_ = false;  // of the threads
  DeferredRelease deferred_release_;
  std::vector<std::thread> threads_;  // one, and one more for each that is calling back
  std::vector<std::thread::id> thread_ids_;
  std::thread::id on_duty_;  // the one of them that drives, or sleeps on the event count
  size_t calling_back_ = 0;  // of them
};

}  // namespace bluefog
