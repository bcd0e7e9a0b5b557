#include <algorithm>

#include "process_group/host/Call.hpp"

namespace bluefog {
namespace {

// The other ranks wait this much longer than rank 0, which may answer only when its own deadline
// has passed.
constexpr std::chrono::milliseconds kForTheAnswer{500};

// A Missed is what the ranks and rank 0 send each other. It says which ranks are to blame, and for
// what. The one by which a rank says that it has come blames nobody.
struct Missed {
  Cause cause = Cause::kTimeout;
  RankSet ranks;

  bool any(int size) const { return !ranks.below(size).empty(); }
  std::byte* data() { return reinterpret_cast<std::byte*>(this); }
};

std::shared_ptr<MessageOp> newOp(Deadline deadline) {
  Signature signature;
  signature.kind = OpKind::kMonitoredBarrier;
  signature.count = sizeof(Missed);
  return std::make_shared<MessageOp>(signature, deadline);
}

// A Round is one monitored barrier. It has a tag of its own, so that a message that comes too late
// does not count in the next one.
struct Round {
  Engine& engine;
  FlightLog& log;
  const int64_t tag;

  void send(MessageOp& op, int rank, Missed& missed, SendMode mode) const {
    addSend(engine.mailbox(), op, {rank, tag, ConstSpans(ConstSpan{missed.data(), sizeof missed})},
            mode);
    op.partners.push_back(rank);
  }
  std::shared_ptr<int> receive(MessageOp& op, int rank, Missed& missed) const {
    auto sender = std::make_shared<int>(kAnySource);
    op.tasks.push_back(
        bluefog::receive(engine.mailbox(), op, rank, tag, {missed.data(), sizeof missed}, sender));
    op.partners.push_back(rank);
    return sender;
  }
  void post(const std::shared_ptr<MessageOp>& op) const {
    engine.post(op, Engine::Who::kCaller);
    log.add("bluefog:monitored_barrier", op, {}, {});
  }
  void run(const std::shared_ptr<MessageOp>& op) const {
    post(op);
    engine.wait(*op, Deadline::never());
  }

  // Does the part of a rank other than 0, and returns what rank 0 has answered.
  Missed report(Deadline deadline) const {
    const auto op = newOp(deadline);
    const auto token = std::make_shared<std::pair<Missed, Missed>>();
    op->memory = token;
    send(*op, 0, token->first, SendMode::kRendezvous);
    receive(*op, 0, token->second);
    run(op);
    if (op->error) {
      std::rethrow_exception(op->error);
    }
    return token->second;
  }
  // Waits on rank 0 for the others, and returns what to answer them. It blames all ranks that have
  // not come, or the first one without `all`. Sets `failure` to what rank 0 has to throw, unless
  // that is only that ranks have not come.
  Missed collect(Deadline deadline, bool all, std::exception_ptr& failure) const {
    const auto op = newOp(deadline);
    const auto tokens =
        std::make_shared<std::vector<Missed>>(static_cast<size_t>(engine.members().size));
    op->memory = tokens;
    std::vector<std::shared_ptr<int>> senders(1);
    for (int rank = 1; rank < engine.members().size; ++rank) {
      senders.push_back(receive(*op, rank, (*tokens)[static_cast<size_t>(rank)]));
    }
    run(op);
    const int size = engine.members().size;
    Missed missed;
    if (op->error) {
      const Error error = errorIn(op->error).value();
      if (error.cause() != Cause::kTimeout) {
        failure = op->error;
      }
      if (error.cause() == Cause::kPeerFailed || error.cause() == Cause::kAborted) {
        missed = {error.cause(), engine.members().among(error.ranks())};
        return missed;
      }
      if (error.ranks() == std::vector{engine.members().global(0)}) {
        missed.ranks.add(0);  // another rank has given up waiting for rank 0
        return missed;
      }
    }
    for (int rank = 1; rank < size; ++rank) {
      const bool came = *senders[static_cast<size_t>(rank)] != kAnySource;
      if (!came && (all || !missed.any(size))) {
        missed.ranks.add(rank);
      }
    }
    return missed;
  }
  // Sends the answer of rank 0. A rank that has not come finds it when it comes, if the lane to it
  // has room for it.
  void answer(const Missed& missed) const {
    std::vector<std::shared_ptr<MessageOp>> answers;
    for (int rank = 1; rank < engine.members().size; ++rank) {
      const auto op = newOp(Deadline::in(kForTheAnswer));
      const auto copy = std::make_shared<Missed>(missed);
      op->memory = copy;
      send(*op, rank, *copy, SendMode::kEager);
      post(op);
      answers.push_back(op);
    }
    for (const auto& op : answers) {
      engine.wait(*op, Deadline::never());
    }
  }
};

// Says in the words of gloo, which programs and torch's own tests look for, that those global ranks
// have not come in time.
std::string lateIn(std::chrono::milliseconds timeout, const Membership& members,
                   const std::vector<int>& ranks) {
  std::string late = rankList(ranks) + " failed to pass monitoredBarrier in " +
                     std::to_string(timeout.count()) + " ms";
  late.front() = 'R';
  const int own = members.global(members.rank);
  if (members.rank == 0 || std::find(ranks.begin(), ranks.end(), own) != ranks.end()) {
    return late;
  }
  return "Rank " + std::to_string(own) +
         " successfully reached monitoredBarrier, but received errors while waiting for send/recv "
         "from rank " +
         std::to_string(members.global(0)) + ": " + late;
}

}  // namespace

void ProcessGroupBluefog::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  checkProcess("monitored_barrier");
  const Validate validate(engine_->members(), "monitored_barrier");
  // A call that has no time counts as a round, too, because the other ranks count it.
  const Round round{*engine_, log_, -1 - static_cast<int64_t>(monitored_barriers_++)};
  const auto timeout = opts.timeout == c10d::kUnsetTimeout ? groupsTimeout() : opts.timeout;
  if (timeout.count() <= 0) {
    throw Error(Cause::kTimeout, {},
                validate.who() + "Rank " + std::to_string(rank_) +
                    " timed out in monitoredBarrier: " + std::to_string(timeout.count()) +
                    " ms leave no time");
  }
  Missed missed;
  if (rank_ == 0) {
    std::exception_ptr failure;
    missed = round.collect(Deadline::in(timeout), wait_all_ranks, failure);
    round.answer(missed);
    if (failure) {
      std::rethrow_exception(failure);
    }
  } else {
    missed = round.report(Deadline::in(timeout + kForTheAnswer));
  }
  const std::vector<int> ranks = engine_->members().global(missed.ranks.below(size_));
  if (!ranks.empty()) {
    throw Error(
        missed.cause, ranks,
        validate.who() + (missed.cause == Cause::kTimeout
                              ? lateIn(timeout, engine_->members(), ranks)
                              : rankList(ranks) + ", as rank 0 has seen, died, left or broke off"));
  }
}

}  // namespace bluefog
