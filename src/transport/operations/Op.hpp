#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/Deadline.hpp"
#include "transport/memory/Frame.hpp"
#include "transport/operations/Failure.hpp"
#include "transport/operations/Task.hpp"

namespace bluefog {

struct CollectiveOp;
struct MessageOp;

// An OpRole says for whom an operation runs.
enum class OpRole : uint8_t {
  kCall,      // for this rank's program, which waits for its end or asks later
  kDetached,  // for peers: it still sends what an operation that has failed had promised them
  kService,   // for peers, without this rank's program: no call of the program counts it
};

// An Op is one operation: a CollectiveOp or a MessageOp. The driving thread steps its tasks; it has
// finished when all of them have ended, when one has thrown, when the deadline has passed, or when
// a rank that it needs is gone. It owns its tasks, and through `memory` what they read and write.
//
// Thread safety: one thread fills it before Engine::post(). From then on only the driving thread
// changes it, and other threads read `failure`, `error` and `ended` when hasEnded() is true. Any
// thread may call hasEnded() and settleCallingBack().
struct Op {
  using Time = Deadline::Clock::time_point;

  Op(Signature op_signature, Deadline op_deadline, OpRole op_role)
      : signature(op_signature), deadline(op_deadline), role(op_role) {}
  virtual ~Op() = default;

  // Each returns this operation as what it is, and null where it is the other kind. Nothing else
  // casts an Op.
  virtual CollectiveOp* asCollective() { return nullptr; }
  virtual MessageOp* asMessage() { return nullptr; }
  // Returns the number by which titles and errors name this operation.
  virtual uint64_t titleNumber() const { return sequence; }

  const Signature signature;
  const Deadline deadline;
  const OpRole role;
  uint64_t sequence = 0;  // counts collectives and messages apart, from 1
  Time issued{};
  Time ended{};  // written before `done`
  std::vector<Task> tasks;
  std::string title;             // what errors call it; made from the signature where it is empty
  std::shared_ptr<void> memory;  // owns what the tasks read and write

  // The driving thread calls `epilogue` after the tasks have succeeded and before `done` is set. It
  // puts results in place that the tasks could not write there.
  std::function<void()> epilogue;
  std::optional<Failure> failure;  // written before `done`
  std::exception_ptr error;        // tells `failure`; written before `done`
  std::atomic<bool> done{false};
  // `finished` is called once, outside of every lock: by the driving thread, or by the engine's own
  // thread where it may call back into the program.
  std::function<void(Op&)> finished;

  bool hasEnded() const { return done.load(std::memory_order_acquire); }
  // Returns whether the end of this operation may call back into the program. The first caller
  // settles it: one that asks for a future of it, or one that finds that it has ended.
  bool settleCallingBack(bool calls_back) {
    Ending settled = Ending::kOpen;
    const Ending wanted = calls_back ? Ending::kCallsBack : Ending::kPlain;
    return (ending_.compare_exchange_strong(settled, wanted) ? wanted : settled) ==
           Ending::kCallsBack;
  }
  // Lets go of the caller's tensors, and of the Work, which holds this operation.
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
