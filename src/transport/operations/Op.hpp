#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/Deadline.hpp"
#include "core/Spans.hpp"
#include "transport/memory/Frame.hpp"
#include "transport/operations/Failure.hpp"
#include "transport/operations/Task.hpp"

namespace bluefog {

// One message that an operation sends.
struct Outgoing {
  int destination = 0;
  int64_t tag = 0;  // of none that is second: see Phase
  ConstSpans data;
  double weight = 1.0;  // what its receiver multiplies it by, where it sums
  Phase phase = Phase::kOnly;
  bool is_ready = true;  // else `data` is still to be made, by the operation itself
  // Where all of `data` lies in this rank's heap, for its receiver to read it there.
  std::optional<uint64_t> offer = std::nullopt;
};

// One posted operation. The engine's driving thread steps its tasks; when all have ended, or one
// has thrown, or the deadline has passed, or a rank that it needs is gone, it is finished.
struct Op {
  // Collectives of a group run one after the other in the order issued; messages (point-to-point
  // and neighbor operations) all at once, matched by MatchKey.
  enum class Kind { kCollective, kMessage };

  Op(Kind op_kind, Signature op_signature, Deadline op_deadline)
      : kind(op_kind), signature(op_signature), deadline(op_deadline) {}

  const Kind kind;
  const Signature signature;
  const Deadline deadline;
  uint64_t sequence = 0;
  // A call of neighbors, which gets its number when it is posted; see MatchKey.
  std::optional<Counter> counter;
  uint64_t number = 0;
  using Time = Deadline::Clock::time_point;
  Time issued{};
  Time ended{};         // written before `done`
  double factor = 1.0;  // PREMUL_SUM: what this rank's input is multiplied by
  std::vector<Outgoing> outgoing;
  std::vector<Task> tasks;    // the first ones send what is outgoing, one each
  std::vector<int> partners;  // the ranks that a message operation deals with
  std::string called;         // by its caller; empty: as its signature says
  // What the living have not taken yet of one that failed since another rank is gone. Nobody waits
  // for it.
  bool is_detached = false;
  // What this rank does for others, without its program: it counts for no call of that.
  bool is_service = false;
  size_t copied_bytes = 0;
  // A failure that came too late for the operation it was of, to be told by this one.
  std::optional<Failure> deferred_failure;
  std::shared_ptr<void> memory;  // owns what the tasks read and write

  // Called by the driving thread after the tasks have succeeded, before `done`: puts results in
  // place that the tasks could not write there.
  std::function<void()> epilogue;
  // Written by the driving thread before `done`.
  std::optional<Failure> failure;
  std::exception_ptr error;  // that tells it
  std::atomic<bool> done{false};
  // Called once, outside of every lock: by the driving thread, or, where it may call back into the
  // program, by the engine's own.
  std::function<void(Op&)> finished;

  bool hasEnded() const { return done.load(std::memory_order_acquire); }
  // Whether its end may call back into the program. Settled once, by who first asks for a future of
  // it, or finds that it has ended; told to all others.
  bool settleCallingBack(bool calls_back) {
    Ending settled = Ending::kOpen;
    const Ending wanted = calls_back ? Ending::kCallsBack : Ending::kPlain;
    return (ending_.compare_exchange_strong(settled, wanted) ? wanted : settled) ==
           Ending::kCallsBack;
  }
  // Lets go of the caller's tensors, and of the Work, which holds this.
  void release() {
    finished = nullptr;
    epilogue = nullptr;
    memory.reset();
  }

 private:
  enum class Ending { kOpen, kPlain, kCallsBack };
  std::atomic<Ending> ending_{Ending::kOpen};
};

}  // namespace bluefog
