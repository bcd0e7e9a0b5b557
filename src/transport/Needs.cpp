#include "transport/Needs.hpp"

#include <algorithm>

namespace bluefog {
namespace {

template <class Visit>
void forEachCondition(const Op& op, Visit visit) {
  for (const Script& script : op.scripts) {
    if (!script.done() && script.waiting() != nullptr) {
      visit(*script.waiting());
    }
  }
}

std::vector<int> ranksOf(const Op& op, std::vector<int> (Condition::*which)() const) {
  std::vector<int> ranks;
  forEachCondition(op, [&](const Condition& waiting) {
    const std::vector<int> more = (waiting.*which)();
    ranks.insert(ranks.end(), more.begin(), more.end());
  });
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

bool lacksOneOf(const RankSet& gone, const Condition& waiting) {
  const std::vector<int> missing = waiting.missing();
  const auto is_gone = [&](int rank) { return gone.has(rank); };
  return waiting.anyWillDo() && !missing.empty()
             ? std::all_of(missing.begin(), missing.end(), is_gone)
             : std::any_of(missing.begin(), missing.end(), is_gone);
}

// Its caller hears of the failure at once, and may then change the memory.
std::shared_ptr<void> keepOutgoing(const std::shared_ptr<Op>& op) {
  struct Kept {
    std::shared_ptr<Op> op;  // its scripts refer to it
    std::vector<std::byte> data;
  };
  auto kept =
      std::make_shared<Kept>(Kept{op, {op->outgoing, op->outgoing + op->signature.bytes()}});
  op->outgoing = kept->data.data();
  return kept;
}

}  // namespace

std::vector<int> missingFor(const Op& op) {
  return ranksOf(op, &Condition::missing);
}

std::vector<int> lateFor(const Op& op) {
  // Who has not taken what it sends may wait for the same rank as the last script, which receives.
  const Script& last = op.scripts.back();
  const bool receives = op.sends < op.scripts.size() && !last.done() && last.waiting() != nullptr;
  return receives ? last.waiting()->late() : ranksOf(op, &Condition::late);
}

std::optional<Failure> cutShort(const Op& op) {
  std::optional<Failure> failure;
  forEachCondition(op, [&](const Condition& waiting) {
    if (!failure) {
      failure = waiting.brokenOff();
    }
  });
  return failure;
}

bool sleeps(const Op& op) {
  bool all = true;
  forEachCondition(op, [&](const Condition& waiting) { all = all && waiting.sleeps(); });
  return all;
}

bool hasSent(const Op& op) {
  return std::all_of(op.scripts.begin(), op.scripts.begin() + static_cast<std::ptrdiff_t>(op.sends),
                     [](const Script& script) { return script.done(); });
}

RankSet setOf(const std::vector<Departure>& gone) {
  RankSet ranks;
  for (const Departure& departure : gone) {
    ranks.add(departure.rank);
  }
  return ranks;
}

bool lacks(const Op& op, const RankSet& gone) {
  bool any = false;
  forEachCondition(op, [&](const Condition& waiting) { any |= lacksOneOf(gone, waiting); });
  return any;
}

std::shared_ptr<Op> remainderOf(const std::shared_ptr<Op>& op, const RankSet& gone) {
  auto rest = std::make_shared<Op>(op->kind, op->signature, op->deadline);
  for (size_t i = 0; i < op->sends; ++i) {
    Script& send = op->scripts[i];
    if (!send.done() && send.waiting() != nullptr && !lacksOneOf(gone, *send.waiting())) {
      rest->scripts.push_back(std::move(send));
    }
  }
  if (rest->scripts.empty()) {
    return nullptr;
  }
  rest->sends = rest->scripts.size();
  rest->sequence = op->sequence;
  rest->is_remainder = true;
  rest->memory = op->is_remainder ? op->memory : keepOutgoing(op);
  return rest;
}

Failure peerFailed(const Membership& members, const Op& op, const std::vector<Departure>& gone) {
  const std::vector<int> missing = missingFor(op);
  std::vector<int> dead;
  std::vector<int> left;
  std::string reason;
  const auto blame = [&](const Departure& departure, std::vector<int>& ranks) {
    ranks.push_back(members.global(departure.rank));
    reason += (reason.empty() ? "" : "; ") + departure.describe(ranks.back());
  };
  for (const Departure& departure : gone) {
    const bool died = departure.how == Departure::How::kDied;
    if (died || std::count(missing.begin(), missing.end(), departure.rank) > 0) {
      blame(departure, died ? dead : left);
    }
  }
  if (dead.empty() && left.empty()) {  // who is missing has failed for want of one that left
    for (const Departure& departure : gone) {
      blame(departure, left);
    }
  }
  // Who left may have left because another one died: then the dead are to blame.
  std::vector<int>& blamed = dead.empty() ? left : dead;
  std::sort(blamed.begin(), blamed.end());
  return {Cause::kPeerFailed, blamed, reason};
}

}  // namespace bluefog
