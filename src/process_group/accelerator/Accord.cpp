#include "process_group/accelerator/Accord.hpp"

#include <c10/util/Exception.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <utility>

namespace bluefog {
namespace {

constexpr Signature kVerdict{.kind = OpKind::kAgreement, .dtype = Dtype::kUInt8, .count = 1};
// In the place of a call's number: of one that is given up, and of one that is never to be.
constexpr int64_t kGivenUp = -1;
constexpr int64_t kOutOfStep = -2;
constexpr int64_t kInOrder = 0;  // the tag of what matches by nothing else
constexpr std::chrono::milliseconds kBetweenLooks{20};
// A partner has told that it calls, and how long it waits for its other partners from then on.
constexpr std::chrono::milliseconds kSlack{5000};
constexpr char kNotInStep[] =
    "and this one may not have exchanged equally often, since a call that one of them has broken "
    "off; make a new group";

}  // namespace

void Accord::awaitTurn(std::unique_lock<std::timed_mutex>& turn) const {
  while (!turn.try_lock_for(kBetweenLooks)) {
    if (frontend_.interrupt) {
      frontend_.interrupt();
    }
  }
}

void Accord::giveUpOn(const Call& call) {
  for (const std::vector<int>* ranks : {&call.edges.partners, &call.others}) {
    for (const int rank : *ranks) {
      out_of_step_.add(rank);
    }
  }
}

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

Accord::Asked Accord::ask(const Signature& signature, std::string called, Deadline deadline,
                          int partner, const Notice& own, int64_t tag, int64_t their_tag) {
  const auto op = std::make_shared<Op>(Op::Kind::kMessage, signature, deadline);
  const auto told = std::make_shared<Asked::Told>(Asked::Told{own, {}});
  addSend(engine_->mailbox(), *op, told->own.to(partner, tag));
  op->scripts.push_back(takeNotice(engine_->mailbox(), *op, partner, their_tag, told->theirs));
  op->partners = {partner};
  op->called = std::move(called);
  op->memory = told;
  engine_->post(op, Engine::Who::kCaller);
  return {partner, op, told};
}

// Nobody waits for that.
void Accord::tell(const Signature& signature, int partner, int64_t tag, int64_t what,
                  Deadline deadline) {
  const auto own = std::make_shared<Notice>(Notice{{.call = what}});
  auto op = std::make_shared<Op>(Op::Kind::kMessage, signature, deadline);
  addSend(engine_->mailbox(), *op, own->to(partner, tag));
  op->partners = {partner};
  op->memory = own;
  engine_->post(op, Engine::Who::kEngine);
}

// An operation for each partner, so that each can fail alone.
Agreement Accord::on(const Call& call, Deadline deadline) {
  const int64_t number = ++calls_;
  const auto& [partners, destinations] = std::tie(call.edges.partners, call.edges.destinations);
  Agreement agreement;
  for (const int rank : call.others) {
    if (out_of_step_.has(rank)) {
      agreement.add(raised(call, Cause::kMismatch, rank, kNotInStep));
    }
  }
  std::vector<Asked> all;
  for (size_t i = 0; i < partners.size(); ++i) {
    if (out_of_step_.has(partners[i])) {
      agreement.add(raised(call, Cause::kMismatch, partners[i], kNotInStep));
      if (out_of_step_.isToBeTold(partners[i])) {
        tell(call.signature, partners[i], kInOrder, kOutOfStep, deadline);
      }
      continue;
    }
    Notice own{{.call = number, .limit_ms = deadline.limit().count()}};
    if (i < destinations.size()) {
      own.weight = destinations[i].weight;
      own.data.rows = call.rows.empty() ? 0 : call.rows[i];
    }
    all.push_back(ask(call.signature, call.called, deadline, partners[i], own, kInOrder, kInOrder));
    log_.add(call.title, all.back().op, call.inputs, {});
  }
  const auto give_up = [&](int partner) {
    tell(kVerdict, partner, number, kGivenUp, Deadline::in(deadline.limit()));
  };
  try {
    for (const Asked& asked : all) {
      engine_->wait(*asked.op, Deadline::never());
      if (asked.op->error) {
        agreement.add(frontend_.raised(asked.op->error));
        give_up(asked.partner);
      } else if (asked.told->theirs.data.call == kOutOfStep) {
        out_of_step_.add(asked.partner);
        agreement.add(raised(call, Cause::kMismatch, asked.partner, kNotInStep));
      } else {
        agreement.add(asked.partner, asked.told->theirs);
      }
    }
  } catch (...) {  // Ctrl-C
    for (const Asked& asked : all) {
      give_up(asked.partner);
    }
    throw;
  }
  confirm(call, agreement, number);
  return agreement;
}

Deadline Accord::endOf(Deadline deadline) {
  return Deadline::in(2 * (deadline.limit() + kSlack));
}

void Accord::confirm(const Call& call, Agreement& agreement, int64_t number) {
  std::vector<Asked> all;
  for (const auto& [partner, told] : agreement.told()) {
    const std::chrono::milliseconds theirs(told.data.limit_ms);
    all.push_back(ask(kVerdict, call.name(), Deadline::in(theirs + kSlack), partner,
                      {{.call = told.data.call}}, number, told.data.call));
    log_.add(call.title, all.back().op, call.inputs, {});
  }
  try {
    for (const Asked& asked : all) {
      engine_->wait(*asked.op, Deadline::never());
      const int64_t theirs = asked.told->theirs.data.call;
      if (asked.op->error) {
        drop(call, agreement, asked);
      } else if (theirs == kGivenUp) {
        agreement.drop(asked.partner, raised(call, Cause::kTimeout, asked.partner,
                                             "had given up this call before this rank came"));
      } else if (theirs != number) {
        out_of_step_.add(asked.partner);
        agreement.drop(asked.partner, raised(call, Cause::kMismatch, asked.partner, kNotInStep));
      }
    }
  } catch (...) {  // Ctrl-C
    for (const Asked& asked : all) {
      out_of_step_.add(asked.partner);
    }
    throw;
  }
}

// Who has heard that this rank goes on, and lives, may exchange.
void Accord::drop(const Call& call, Agreement& agreement, const Asked& asked) {
  const std::optional<Error> error = errorIn(asked.op->error);
  if (!error || error->cause() != Cause::kPeerFailed) {
    out_of_step_.add(asked.partner);
  }
  const bool is_late = error && error->cause() == Cause::kTimeout;
  agreement.drop(asked.partner, is_late ? raised(call, Cause::kTimeout, asked.partner,
                                                 "has come, and then has not gone on")
                                        : frontend_.raised(asked.op->error));
}

Accord::WorkPtr Accord::exchanged(const Call& call, const std::function<Agreement()>& settle,
                                  const std::function<WorkPtr(const Agree&)>& exchange) {
  std::unique_lock turn(turns_, std::defer_lock);
  awaitTurn(turn);
  std::optional<Agreement> agreement;
  std::exception_ptr failure;
  WorkPtr work;
  try {
    work = exchange([&]() -> const Agreement& { return agreement.emplace(settle()); });
  } catch (c10::Error& error) {
    if (agreement) {
      error.add_context(who(call) + "so the accelerator's backend says; make a new group");
    }
    failure = std::current_exception();
  } catch (const std::exception& error) {
    failure = !agreement ? std::current_exception()
                         : std::make_exception_ptr(std::runtime_error(
                               who(call) + "the accelerator's backend says: " + error.what() +
                               "; make a new group"));
  }
  if (agreement && failure) {
    for (const auto& [partner, told] : agreement->told()) {
      out_of_step_.add(partner);
    }
    for (const int rank : call.others) {
      out_of_step_.add(rank);
    }
  }
  if (agreement && agreement->error()) {
    std::rethrow_exception(agreement->error());
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
  return work;
}

std::exception_ptr Accord::raised(const Call& call, Cause cause, int partner,
                                  const char* what) const {
  const int global = engine_->members().global(partner);
  const std::string text = who(call) + rankList({global}) + " " + what;
  return frontend_.raised(std::make_exception_ptr(Error(cause, {global}, text)));
}

std::string Accord::who(const Call& call) const {
  return engine_->members().who() + " " + call.name() + ": ";
}

}  // namespace bluefog
