#include "process_group/accelerator/Accord.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <utility>

#include "core/Interruption.hpp"

namespace bluefog {
namespace {

constexpr Signature kVerdict{.kind = OpKind::kAgreement, .dtype = Dtype::kUInt8, .count = 1};
// In the place of a call's number: of one that is given up, and of one that is refused for ever.
constexpr int64_t kGivenUp = -1;
constexpr int64_t kRefused = -2;
constexpr std::chrono::milliseconds kBetweenInterrupts{20};
// After Ctrl-C, for others who already rely on this rank.
constexpr std::chrono::milliseconds kPatience{2000};

}  // namespace

// To a partner and from it, about one call.
struct Accord::Asked {
  struct Told {
    Notice own;
    Notice theirs;
  };
  int partner;
  std::shared_ptr<Op> op;
  std::shared_ptr<Told> told;
};

class Accord::Turn {
 public:
  Turn(Accord& accord, const Call& call) : accord_(accord), lock_(accord.turns_, std::defer_lock) {
    const std::thread::id self = std::this_thread::get_id();
    if (accord.owner_ == self) {  // which waits for it, by way of a signal's handler
      throw std::runtime_error(accord.who(call) + "called inside of another such call");
    }
    while (!lock_.try_lock_for(kBetweenInterrupts)) {
      if (accord.frontend_.interrupt) {
        accord.frontend_.interrupt();
      }
    }
    accord.owner_ = self;
  }
  ~Turn() { accord_.owner_ = std::thread::id(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Accord& accord_;
  std::unique_lock<std::timed_mutex> lock_;
};

Accord::WorkPtr Accord::exchanged(const Call& call, std::chrono::milliseconds timeout,
                                  const std::function<WorkPtr(Deal&)>& exchange) {
  const Turn turn(*this, call);
  const Deadline deadline = Deadline::in(timeout);
  Deal deal([&] { return agree(call, deadline); });
  const auto is_open = [&deal] { return deal.agreement() && !deal.isConcluded(); };
  std::exception_ptr failure;
  WorkPtr work;
  try {
    work = exchange(deal);
  } catch (c10::Error& error) {
    if (is_open()) {
      error.add_context(who(call) + "failed in the exchange; make a new group");
    }
    failure = std::current_exception();
  } catch (const std::exception& error) {
    failure = std::current_exception();
    if (is_open()) {
      failure = std::make_exception_ptr(c10::DistBackendError(
          {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
          who(call) + "failed in the exchange: " + error.what() + "; make a new group"));
    }
  }
  if (failure) {
    if (is_open()) {
      loseStepWith(deal.agreement()->ranks());
      loseStepWith(call.others());
    } else if (!deal.isBegun()) {
      leave(call, Progress::kNone, deadline);
    }
    std::rethrow_exception(failure);
  }
  if (deal.agreement() && deal.agreement()->error()) {
    std::rethrow_exception(deal.agreement()->error());
  }
  return work;
}

Agreement Accord::agree(const Call& call, Deadline deadline) {
  return call.of_all_with ? agreeWithAll(call, deadline) : agreeWithPartners(call, deadline);
}

void Accord::raiseErrorOf(const Op& op) const {
  if (op.error) {
    std::rethrow_exception(frontend_.raised(op.error));
  }
}

Agreement Accord::agreeWithPartners(const Call& call, Deadline deadline) {
  Agreement agreement;
  const auto giveUpWith = [&](int partner) { giveUp(partner, deadline); };
  const auto judge = [&](const Asked& asked) {
    if (asked.op->error) {
      agreement.add(frontend_.raised(asked.op->error));
      giveUpWith(asked.partner);
    } else if (asked.told->theirs.data.call == kRefused) {
      loseStepWith({asked.partner});
      agreement.add(notInStep(call, asked.partner));
    } else if (asked.told->theirs.data.call == kGivenUp) {
      agreement.add(givenUp(call, asked.partner));
    } else {
      agreement.add(asked.partner, asked.told->theirs);
    }
  };
  hear(
      askAll(call, deadline, agreement), agreement, [this](const Op& op) { await(op); }, judge,
      giveUpWith);
  confirm(call, agreement);
  return agreement;
}

Accord::Asked Accord::ask(const Signature& signature, std::string called, Deadline deadline,
                          int partner, const Notice& own, int64_t tag, int64_t their_tag) {
  const auto op = std::make_shared<Op>(Op::Kind::kMessage, signature, deadline);
  const auto told = std::make_shared<Asked::Told>(Asked::Told{own, {}});
  addSend(engine_.mailbox(), *op, told->own.to(partner, tag));
  op->scripts.push_back(takeNotice(engine_.mailbox(), *op, partner, their_tag, told->theirs));
  op->partners = {partner};
  op->called = std::move(called);
  op->memory = told;
  return {partner, op, told};
}

// Ranks that do not agree on the edge's directions do not meet: what is told along an edge has the
// tag that a CPU's message would have, and what is told against one has another tag.
Accord::Asked Accord::askAbout(const Call& call, int partner, const Notice& own,
                               Deadline deadline) {
  const int64_t order = call.match.tag % kOrders;
  const auto tagWhere = [&](const std::vector<WeightedRank>& edges) {
    const bool is_there = std::any_of(edges.begin(), edges.end(),
                                      [partner](const auto& edge) { return edge.rank == partner; });
    return is_there ? order : kAgainst - order;
  };
  Asked asked = ask(call.signature, call.called, deadline, partner, own,
                    tagWhere(call.edges.destinations), tagWhere(call.edges.sources));
  asked.op->number = call.match.number;
  return asked;
}

// An operation for each partner, so that each can fail alone. With whom this rank is not in step it
// does not agree.
std::vector<Accord::Asked> Accord::askAll(const Call& call, Deadline deadline,
                                          Agreement& agreement) {
  for (const int rank : call.others()) {
    if (isOutOfStep(rank)) {
      agreement.add(notInStep(call, rank));
    }
  }
  begin(call);
  std::vector<Asked> all;
  for (size_t i = 0; i < call.edges.partners.size(); ++i) {
    const int partner = call.edges.partners[i];
    if (isOutOfStep(partner)) {
      agreement.add(notInStep(call, partner));
      answer(call, partner, kRefused, deadline);
      continue;
    }
    Notice own{{.call = calls_, .limit_ms = deadline.limit().count()}};
    if (i < call.edges.destinations.size()) {
      own.weight = call.edges.destinations[i].weight;
      own.data.rows = call.rows.empty() ? 0 : call.rows[i];
    }
    all.push_back(askAbout(call, partner, own, deadline));
    engine_.post(all.back().op, Engine::Who::kCaller);
    log_.add(call.title, all.back().op, call.inputs, {});
  }
  close(call);
  return all;
}

// Others may exchange, since they have heard that this rank goes on. So it does even after Ctrl-C,
// if what is left to be heard comes soon, however often it is pressed.
void Accord::settle(const Op& op, Agreement& agreement) {
  while (true) {
    try {
      if (!engine_.wait(op, agreement.patience().value_or(Deadline::never()))) {
        std::rethrow_exception(agreement.error());
      }
      return;
    } catch (const Interruption&) {
      if (agreement.patience() && agreement.patience()->passed()) {
        throw;
      }
      if (!agreement.patience()) {
        agreement.interrupt(std::current_exception(), Deadline::in(kPatience));
      }
    }
  }
}

// Judges what each has told; where Ctrl-C falls in between, leaves all but those with whom there is
// nothing any more.
void Accord::hear(const std::vector<Asked>& all, const Agreement& agreement,
                  const std::function<void(const Op&)>& wait,
                  const std::function<void(const Asked&)>& judge,
                  const std::function<void(int)>& leave) {
  size_t judged = 0;
  try {
    for (; judged < all.size(); ++judged) {
      wait(*all[judged].op);
      judge(all[judged]);
    }
  } catch (...) {
    for (size_t i = 0; i < all.size(); ++i) {
      if (i >= judged || agreement.isWith(all[i].partner)) {
        leave(all[i].partner);
      }
    }
    throw;
  }
}

// Nobody waits for that. It takes what the partner sends about its call, as any call of it does.
void Accord::answer(const Call& call, int partner, int64_t what, Deadline deadline) {
  const Asked asked = askAbout(call, partner, {{.call = what}}, deadline);
  asked.op->is_service = true;
  engine_.post(asked.op, Engine::Who::kEngine);
}

// A gradient has its call's number.
void Accord::begin(const Call& call) {
  ++calls_;
  counts_ = call.match.number == 0;
  if (counts_) {
    call.match.number = engine_.takeNumber(counterOf(call));
  }
}

// All that this rank expects in it is known by then.
void Accord::close(const Call& call) {
  if (!counts_) {
    return;
  }
  const auto op = std::make_shared<Op>(Op::Kind::kMessage, call.signature, Deadline::never());
  op->counter = counterOf(call);
  op->number = call.match.number;
  op->is_service = true;
  engine_.post(op, Engine::Who::kEngine);  // nobody may wait for anything in this call
}

void Accord::giveUpAll(const Call& call, Deadline deadline) {
  begin(call);
  for (const int partner : call.edges.partners) {
    answer(call, partner, kGivenUp, deadline);
  }
  close(call);
}

// Nor for that.
void Accord::giveUp(int partner, Deadline deadline) {
  const auto own = std::make_shared<Notice>(Notice{{.call = kGivenUp}});
  const auto op =
      std::make_shared<Op>(Op::Kind::kMessage, kVerdict, Deadline::in(deadline.limit()));
  addSend(engine_.mailbox(), *op, own->to(partner, calls_));
  op->partners = {partner};
  op->memory = own;
  op->is_service = true;
  engine_.post(op, Engine::Who::kEngine);
}

void Accord::confirm(const Call& call, Agreement& agreement) {
  std::vector<Asked> all;
  for (const auto& [partner, told] : agreement.told()) {
    const std::chrono::milliseconds theirs(told.data.limit_ms);
    all.push_back(ask(kVerdict, call.name(), Deadline::in(theirs + kSlack), partner,
                      {{.call = told.data.call}}, calls_, told.data.call));
    engine_.post(all.back().op, Engine::Who::kCaller);
    log_.add(call.title, all.back().op, call.inputs, {});
  }
  const auto judge = [&](const Asked& asked) {
    if (asked.op->error) {
      dropFailed(call, agreement, asked);
    } else if (asked.told->theirs.data.call == kGivenUp) {
      agreement.drop(asked.partner, givenUp(call, asked.partner));
    }
  };
  hear(
      all, agreement, [&](const Op& op) { settle(op, agreement); }, judge,
      [this](int partner) { loseStepWith({partner}); });
}

// Who has heard that this rank goes on, and lives, may exchange.
void Accord::dropFailed(const Call& call, Agreement& agreement, const Asked& asked) {
  const std::optional<Error> error = errorIn(asked.op->error);
  if (!error || error->cause() != Cause::kPeerFailed) {
    loseStepWith({asked.partner});
  }
  const bool is_late = error && error->cause() == Cause::kTimeout;
  agreement.drop(asked.partner, is_late ? raised(call, Cause::kTimeout, {asked.partner},
                                                 "has come, and then has not gone on")
                                        : frontend_.raised(asked.op->error));
}

std::exception_ptr Accord::raised(const Call& call, Cause cause, std::vector<int> ranks,
                                  const std::string& what) const {
  ranks = engine_.members().global(ranks);
  const std::string text = who(call) + rankList(ranks) + " " + what;
  return frontend_.raised(std::make_exception_ptr(Error(cause, std::move(ranks), text)));
}

std::exception_ptr Accord::notInStep(const Call& call, int rank) const {
  return raised(call, Cause::kMismatch, {rank},
                "or this one has broken off an exchange, so that it is not known what belongs "
                "together on the device; make a new group");
}

std::exception_ptr Accord::givenUp(const Call& call, int rank) const {
  return raised(call, Cause::kTimeout, {rank}, "had given up this call before this rank came");
}

std::string Accord::who(const Call& call) const {
  return engine_.members().who() + " " + call.name() + ": ";
}

}  // namespace bluefog
