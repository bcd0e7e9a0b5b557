// An accelerator's backend knows neither what a peer calls nor whether it lives, and would wait for
// ever, or take other bytes for the expected ones. So ranks first agree on a call, over the CPU:
// each tells its partners what it calls, and then, when it has heard all of them or given some up,
// with which of their calls it goes on. Who has given up a call has said so, whenever the other one
// comes to it.
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "process_group/Agreement.hpp"
#include "process_group/Call.hpp"

namespace bluefog {
namespace {

constexpr Signature kVerdict{.kind = OpKind::kAgreement, .dtype = Dtype::kUInt8, .count = 1};
constexpr int64_t kNone = -1;  // of a partner's calls
// A partner has told that it calls, and may wait for its other partners as long as this rank has.
constexpr std::chrono::seconds kLonger{5};

}  // namespace

// To a partner and from it, about one call.
struct ProcessGroupBluefog::Asked {
  struct Told {
    Notice own;
    Notice theirs;
  };
  int partner;
  std::shared_ptr<Op> op;
  std::shared_ptr<Told> told;
};

ProcessGroupBluefog::Asked ProcessGroupBluefog::ask(const Signature& signature, Deadline deadline,
                                                    int partner, const Notice& own, int64_t tag,
                                                    int64_t their_tag) {
  const auto op = std::make_shared<Op>(Op::Kind::kMessage, signature, deadline);
  const auto told = std::make_shared<Asked::Told>(Asked::Told{own, {}});
  addSend(engine_->mailbox(), *op, told->own.to(partner, tag));
  op->scripts.push_back(takeNotice(engine_->mailbox(), *op, partner, their_tag, told->theirs));
  op->partners = {partner};
  op->memory = told;
  engine_->post(op, Engine::Who::kCaller);
  return {partner, op, told};
}

// Nobody waits for that.
void ProcessGroupBluefog::giveUp(int partner, int64_t call) {
  const auto own = std::make_shared<Notice>(Notice{{0, kNone}});
  auto op = std::make_shared<Op>(Op::Kind::kMessage, kVerdict, deadline(c10d::kUnsetTimeout));
  addSend(engine_->mailbox(), *op, own->to(partner, call));
  op->partners = {partner};
  op->memory = own;
  engine_->post(op, Engine::Who::kEngine);
}

// `rows`: of what each destination gets, where they are gathered. An operation for each partner, so
// that each can fail alone.
Agreement ProcessGroupBluefog::agree(const Signature& signature, const char* title,
                                     const std::vector<at::Tensor>& inputs, const Edges& edges,
                                     const std::vector<int64_t>& rows, int64_t tag) {
  const int64_t call = ++agreements_;
  Agreement agreement;
  std::vector<Asked> all;
  for (size_t i = 0; i < edges.partners.size(); ++i) {
    const int partner = edges.partners[i];
    if (out_of_step_.has(partner)) {
      agreement.add(raisedOf(signature.kind, Cause::kMismatch, partner,
                             "and this one may not have exchanged equally often, since a call "
                             "that one of them has broken off; make a new group"));
      continue;
    }
    Notice own{{0, call}};
    if (i < edges.destinations.size()) {
      own = {{rows.empty() ? 0 : rows[i], call}, edges.destinations[i].weight};
    }
    all.push_back(ask(signature, deadline(c10d::kUnsetTimeout), partner, own, tag, tag));
    log_.add(title, all.back().op, inputs, {});
  }
  ++issued_;
  try {
    for (const Asked& asked : all) {
      engine_->wait(*asked.op, Deadline::never());
      if (asked.op->error) {
        agreement.add(frontend_.raised(asked.op->error));
        giveUp(asked.partner, call);
      } else {
        agreement.add(asked.partner, asked.told->theirs);
      }
    }
  } catch (...) {  // Ctrl-C
    for (const Asked& asked : all) {
      giveUp(asked.partner, call);
    }
    throw;
  }
  confirm(signature.kind, agreement, call);
  return agreement;
}

void ProcessGroupBluefog::confirm(OpKind kind, Agreement& agreement, int64_t call) {
  const Deadline own = deadline(c10d::kUnsetTimeout);
  std::vector<Asked> all;
  for (const auto& [partner, told] : agreement.told()) {
    all.push_back(ask(kVerdict, Deadline::in(own.limit() + kLonger), partner, {{0, told.data.call}},
                      call, told.data.call));
  }
  try {
    for (const Asked& asked : all) {
      engine_->wait(*asked.op, Deadline::never());
      const auto error = errorIn(asked.op->error);
      if (error && error->cause() == Cause::kTimeout) {
        out_of_step_.add(asked.partner);
        agreement.drop(asked.partner, raisedOf(kind, Cause::kTimeout, asked.partner,
                                               "has come, and then has not gone on"));
      } else if (asked.op->error) {
        agreement.drop(asked.partner, frontend_.raised(asked.op->error));
      } else if (asked.told->theirs.data.call != call) {
        agreement.drop(asked.partner, raisedOf(kind, Cause::kTimeout, asked.partner,
                                               "had given up this call before this rank came"));
      }
    }
  } catch (...) {  // Ctrl-C
    out_of_step_.add(agreement);
    throw;
  }
}

std::exception_ptr ProcessGroupBluefog::raisedOf(OpKind kind, Cause cause, int partner,
                                                 const char* what) const {
  const int global = engine_->members().global(partner);
  const std::string text = who(kind) + rankList({global}) + " " + what;
  return frontend_.raised(std::make_exception_ptr(Error(cause, {global}, text)));
}

WorkPtr ProcessGroupBluefog::exchanged(OpKind kind, const Agreement& agreement,
                                       const std::function<WorkPtr()>& exchange) {
  std::exception_ptr failure;
  WorkPtr work;
  try {
    work = exchange();
  } catch (c10::Error& error) {
    error.add_context(who(kind) + "so the accelerator's backend says; make a new group");
    failure = std::current_exception();
  } catch (const std::exception& error) {
    failure = std::make_exception_ptr(std::runtime_error(
        who(kind) + "the accelerator's backend says: " + error.what() + "; make a new group"));
  }
  if (failure) {
    out_of_step_.add(agreement);
  }
  if (agreement.error() || failure) {
    std::rethrow_exception(agreement.error() ? agreement.error() : failure);
  }
  return work;
}

}  // namespace bluefog
