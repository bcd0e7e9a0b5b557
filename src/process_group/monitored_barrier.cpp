#include <array>

#include "process_group/Call.hpp"

namespace bluefog {
namespace {

// Rank 0 answers when its own deadline has passed: who waits for that has to wait a little longer.
constexpr std::chrono::milliseconds kForTheAnswer{500};

// What ranks and rank 0 send each other: which ranks did not come. Nothing, from those that did.
struct Missed {
  std::array<uint8_t, Standing::kMostRanks> ranks{};

  void add(int rank) { ranks[static_cast<size_t>(rank)] = 1; }
  std::vector<int> list(int size) const {
    std::vector<int> all;
    for (int rank = 0; rank < size; ++rank) {
      if (ranks[static_cast<size_t>(rank)] != 0) {
        all.push_back(rank);
      }
    }
    return all;
  }
  std::byte* data() { return reinterpret_cast<std::byte*>(ranks.data()); }
};

std::shared_ptr<Op> newOp(Deadline deadline) {
  Signature signature;
  signature.kind = OpKind::kBarrier;
  signature.count = sizeof(Missed);
  auto op = std::make_shared<Op>(Op::Kind::kMessage, signature, deadline);
  op->title = "monitored_barrier";
  return op;
}

void rethrowUnlessTimeout(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& failure) {
    if (failure.cause() != Cause::kTimeout) {
      throw;
    }
  }
}

// One round of it. Its tag is its own: a token that comes too late must not count in the next.
struct Round {
  Engine& engine;
  const int64_t tag;

  void send(Op& op, int rank, Missed& missed) const {
    op.scripts.push_back(bluefog::send(engine.mailbox(), op, rank, tag, missed.data(), 1.0));
    op.partners.push_back(rank);
    ++op.sends;
  }
  std::shared_ptr<int> receive(Op& op, int rank, Missed& missed) const {
    auto sender = std::make_shared<int>(kAnySource);
    op.scripts.push_back(bluefog::receive(engine.mailbox(), op, rank, tag, missed.data(), sender));
    op.partners.push_back(rank);
    return sender;
  }
  void run(const std::shared_ptr<Op>& op) const {
    engine.post(op, Engine::Who::kCaller);
    engine.wait(*op, Deadline::never());
  }

  // Of a rank other than 0: what rank 0 says.
  Missed report(Deadline deadline) const {
    const auto op = newOp(deadline);
    const auto token = std::make_shared<std::pair<Missed, Missed>>();
    op->memory = token;
    send(*op, 0, token->first);
    receive(*op, 0, token->second);
    run(op);
    if (op->error) {
      std::rethrow_exception(op->error);
    }
    return token->second;
  }
  // Of rank 0: who did not come in time.
  Missed collect(Deadline deadline, bool all) const {
    const auto op = newOp(deadline);
    const auto tokens =
        std::make_shared<std::vector<Missed>>(static_cast<size_t>(engine.members().size));
    op->memory = tokens;
    std::vector<std::shared_ptr<int>> senders(1);
    for (int rank = 1; rank < engine.members().size; ++rank) {
      senders.push_back(receive(*op, rank, (*tokens)[static_cast<size_t>(rank)]));
    }
    run(op);
    Missed missed;
    if (op->error) {
      rethrowUnlessTimeout(op->error);
    }
    for (int rank = 1; rank < engine.members().size; ++rank) {
      const bool came = *senders[static_cast<size_t>(rank)] != kAnySource;
      if (!came && (all || missed.list(rank).empty())) {
        missed.add(rank);
      }
    }
    return missed;
  }
  // Of rank 0. Nobody waits for those who did not come: they find it when they do.
  void answer(const Missed& missed) const {
    for (int rank = 1; rank < engine.members().size; ++rank) {
      const auto op = newOp(Deadline::in(kForTheAnswer));
      const auto copy = std::make_shared<Missed>(missed);
      op->memory = copy;
      send(*op, rank, *copy);
      run(op);
    }
  }
};

}  // namespace

void ProcessGroupBluefog::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  checkProcess("monitored_barrier");
  const Validate validate(engine_->members(), "monitored_barrier");
  const auto timeout =
      opts.timeout == c10d::kUnsetTimeout ? Milliseconds(timeout_ms_.load()) : opts.timeout;
  if (timeout.count() <= 0) {
    throw Error(Cause::kTimeout, {},
                validate.who() + "Rank " + std::to_string(rank_) +
                    " timed out in monitoredBarrier: " + std::to_string(timeout.count()) +
                    " ms leave no time");
  }
  const Round round{*engine_, -1 - static_cast<int64_t>(monitored_barriers_++)};
  Missed missed;
  if (rank_ == 0) {
    missed = round.collect(Deadline::in(timeout), wait_all_ranks);
    round.answer(missed);
  } else {
    missed = round.report(Deadline::in(timeout + kForTheAnswer));
  }
  const std::vector<int> ranks = engine_->members().global(missed.list(size_));
  if (!ranks.empty()) {
    throw Error(Cause::kTimeout, ranks,
                validate.who() + rankList(ranks) + " failed to pass monitoredBarrier in " +
                    std::to_string(timeout.count()) + " ms");
  }
}

}  // namespace bluefog
