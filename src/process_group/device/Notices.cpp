#include "process_group/device/Notices.hpp"

#include <utility>

namespace bluefog {
namespace {

Failure inAnotherOrder(const Membership& members, int peer, uint64_t own, uint64_t theirs) {
  const int rank = members.global(peer);
  return {Cause::kMismatch,
          {rank},
          "it is exchange " + std::to_string(own) + " of this rank with rank " +
              std::to_string(rank) + ", for which it is exchange " + std::to_string(theirs) +
              ": all ranks must make their calls with tensors on the accelerator in one order, "
              "named ones and gradients, too"};
}

// Returns the mismatch of two ranks of which only one names the edge between them. `sends` says
// that this is the source.
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

}  // namespace

// An Exchanged holds the notices of a call by rank: those that this rank sends, and those that it
// receives. The operation of the notices keeps it.
class Notices::Exchanged {
 public:
  Exchanged(const DeviceCall& call, Exchanges& exchanges) {
    RankSet sources;
    for (const WeightedRank& source : call.edges.sources) {
      sources.add(source.rank);
    }
    for (size_t i = 0; i < call.edges.partners.size(); ++i) {
      const int partner = call.edges.partners[i];  // the destinations come first among the partners
      sent_[partner] = {.exchange = ++exchanges[partner],
                        .rows = i < call.rows.size() ? call.rows[i] : 0,
                        .sends = i < call.edges.destinations.size(),
                        .receives = sources.has(partner)};
    }
  }

  // Adds the tasks to the operation that send and receive the notices.
  void addTo(MessageOp& op, Mailbox& mailbox, int64_t tag) {
    for (const auto& [partner, notice] : sent_) {
      addSend(mailbox, op, notice.to(partner, tag));
    }
    for (const auto& [partner, notice] : sent_) {
      const Span place{reinterpret_cast<std::byte*>(&received[partner]), sizeof(Notice)};
      op.tasks.push_back(receive(mailbox, op, partner, tag, place, std::make_shared<int>()));
    }
  }
  // Throws the mismatch that the notices show, if there is one.
  void compare(const Membership& members) const {
    for (const auto& [peer, theirs] : received) {
      const Notice& own = sent_.at(peer);
      if (own.sends != theirs.receives) {
        throw onTheEdge(members, members.rank, peer, own.sends);
      }
      if (own.receives != theirs.sends) {
        throw onTheEdge(members, peer, members.rank, theirs.sends);
      }
      if (own.exchange != theirs.exchange) {
        throw inAnotherOrder(members, peer, own.exchange, theirs.exchange);
      }
    }
  }

  std::map<int, Notice> received;

 private:
  std::map<int, Notice> sent_;
};

void Notices::tell() {
  failure_->listen();
  const Membership& members = engine_.members();
  exchanged_ = std::make_shared<Exchanged>(call_, exchanges_);
  op_ = std::make_shared<MessageOp>(call_.signature, deadline_);
  op_->number = call_.match.number;
  if (call_.match.number == 0) {
    // All calls of a rank on the device count together, whatever their names, because the device's
    // backend knows no names.
    op_->counter = counterOf(call_.signature.kind, call_.edges, 0);
  }
  op_->title = call_.called;
  op_->partners = call_.edges.partners;
  exchanged_->addTo(*op_, engine_.mailbox(), call_.match.tag % kOrders);
  op_->epilogue = [exchanged = exchanged_, &members] { exchanged->compare(members); };
  op_->memory = exchanged_;
  op_->finished = [failure = failure_, &members](const Op& ended) {
    if (ended.failure) {
      failure->set(FirstFailure::of(titleOf(members, ended), *ended.failure));
    }
  };
  engine_.post(op_, waits_.before ? Engine::Who::kCaller : Engine::Who::kEngineSoon);
  call_.match.op = op_;
  are_told_ = true;
  log_.add(call_.title, op_, call_.inputs, {});
  if (waits_.before) {
    await();
  }
}

int64_t Notices::rowsFrom(int rank) const {
  return exchanged_->received.at(rank).rows;
}

void Notices::await() {
  const FirstFailure& first = *failure_->first();
  const bool has_ended = engine_.wait(*op_, Deadline::never(), [&first] { return first.isSet(); });
  if (has_ended && op_->failure) {  // the operation's callback may not have set it yet
    failure_->set(FirstFailure::of(title(), *op_->failure));
  }
  first.check(title());
  if (has_ended && op_->error) {
    std::rethrow_exception(op_->error);  // the group has ended, so no failure was set
  }
}

std::function<void()> Notices::check() const {
  return [first = failure_->first(), call = title()] { first->check(call); };
}

}  // namespace bluefog
