#include "process_group/accelerator/Notices.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace bluefog {
namespace {

// The time between two looks whether another call, or another rank, has failed.
constexpr std::chrono::milliseconds kBetweenLooks{20};

// Other ranks and calls are told which operation failed.
Failure named(const Membership& members, const Op& op) {
  Failure failure = *op.failure;
  failure.reason = titleOf(members, op) + ": " + failure.reason;
  return failure;
}

Failure inAnotherOrder(const Membership& members, int peer, uint64_t own, uint64_t theirs) {
  const int rank = members.global(peer);
  return {Cause::kMismatch,
          {rank},
          "it is exchange " + std::to_string(own) + " of this rank with rank " +
              std::to_string(rank) + ", for which it is exchange " + std::to_string(theirs) +
              ": all ranks must make their calls with tensors on the accelerator in one order, "
              "named ones and gradients, too"};
}

// `sends`: whether it is the source that names it.
Failure onTheEdge(const Membership& members, int source, int destination, bool sends) {
  const std::string from = "rank " + std::to_string(members.global(source));
  const std::string to = "rank " + std::to_string(members.global(destination));
  const int peer = source == members.rank ? destination : source;
  return {Cause::kMismatch,
          {members.global(peer)},
          "ranks do not agree on the edge from " + from + " to " + to + ": " +
              (sends ? from + " sends along it, and " + to + " does not receive from it"
                     : to + " receives along it, and " + from + " does not send to it")};
}

bool has(const std::vector<WeightedRank>& edges, int rank) {
  return std::any_of(edges.begin(), edges.end(),
                     [rank](const WeightedRank& edge) { return edge.rank == rank; });
}

}  // namespace

// What two ranks tell each other, and what is wrong with it.
class Notices::Exchanged {
 public:
  Exchanged(const Membership& members, const DeviceCall& call, Exchanges& exchanges)
      : members_(members) {
    for (size_t i = 0; i < call.edges.partners.size(); ++i) {
      const int partner = call.edges.partners[i];
      sent_[partner] = {.exchange = ++exchanges[partner],
                        .rows = i < call.rows.size() ? call.rows[i] : 0,
                        .sends = has(call.edges.destinations, partner),
                        .receives = has(call.edges.sources, partner)};
    }
  }

  // Adds all scripts to the operation.
  void addTo(Op& op, Mailbox& mailbox, int64_t tag) {
    for (const auto& [partner, notice] : sent_) {
      addSend(mailbox, op, notice.to(partner, tag));
    }
    for (const auto& [partner, notice] : sent_) {
      op.scripts.push_back(takeNotice(mailbox, op, partner, tag, received[partner]));
    }
  }
  // Throws a mismatch.
  void compare() const {
    for (const auto& [peer, theirs] : received) {
      const Notice& own = sent_.at(peer);
      if (own.sends != theirs.receives) {
        throw onTheEdge(members_, members_.rank, peer, own.sends);
      }
      if (own.receives != theirs.sends) {
        throw onTheEdge(members_, peer, members_.rank, theirs.sends);
      }
      if (own.exchange != theirs.exchange) {
        throw inAnotherOrder(members_, peer, own.exchange, theirs.exchange);
      }
    }
  }

  std::map<int, Notice> received;

 private:
  const Membership& members_;
  std::map<int, Notice> sent_;
};

void Notices::tell() {
  failure_->listen();
  const Membership& members = engine_.members();
  exchanged_ = std::make_shared<Exchanged>(members, call_, exchanges_);
  op_ = std::make_shared<Op>(Op::Kind::kMessage, call_.signature, deadline_);
  op_->number = call_.match.number;
  if (call_.match.number == 0) {
    // All of a rank's calls there count together, whatever their names: the backend knows none.
    op_->counter = counterOf(call_.signature.kind, call_.edges, 0);
  }
  op_->called = call_.called;
  op_->partners = call_.edges.partners;
  exchanged_->addTo(*op_, engine_.mailbox(), call_.match.tag % kOrders);
  op_->epilogue = [exchanged = exchanged_] { exchanged->compare(); };
  op_->memory = exchanged_;
  op_->finished = [failure = failure_, &members](const Op& ended) {
    if (ended.failure) {
      failure->setSoon(named(members, ended));
    }
  };
  call_.match.op = op_;
  engine_.post(op_, call_.waits ? Engine::Who::kCaller : Engine::Who::kEngineSoon);
  log_.add(call_.title, op_, call_.inputs, {});
  if (call_.waits) {
    await();
  }
}

int64_t Notices::rowsFrom(int rank) const {
  return exchanged_->received.at(rank).rows;
}

void Notices::await() {
  while (!engine_.wait(*op_, Deadline::in(kBetweenLooks)) && !failure_->get()) {
  }
  failure_->check(titleOf(engine_.members(), *op_));
  if (op_->error) {  // the group has ended
    std::rethrow_exception(op_->error);
  }
}

std::function<void()> Notices::check() const {
  return [failure = failure_, call = titleOf(engine_.members(), *op_)] { failure->check(call); };
}

}  // namespace bluefog
