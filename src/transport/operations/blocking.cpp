#include "transport/operations/blocking.hpp"

#include <algorithm>

namespace bluefog {
namespace {

template <class Visit>
void forEachCondition(const Op& op, Visit visit) {
  for (const Task& task : op.tasks) {
    if (!task.done() && task.waiting() != nullptr) {
      visit(*task.waiting());
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

}  // namespace

std::vector<int> missingFor(const Op& op) {
  return ranksOf(op, &Condition::missing);
}

std::vector<int> lateFor(const CollectiveOp& op) {
  return ranksOf(op, &Condition::late);
}

std::vector<int> lateFor(const MessageOp& op) {
  // A rank that has not taken what this one sends may wait for the same rank as the last task,
  // which receives.
  const Task& last = op.tasks.back();
  const bool receives =
      op.outgoing.size() < op.tasks.size() && !last.done() && last.waiting() != nullptr;
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

bool hasSent(const MessageOp& op) {
  const auto sends = static_cast<std::ptrdiff_t>(op.outgoing.size());
  return std::all_of(op.tasks.begin(), op.tasks.begin() + sends,
                     [](const Task& task) { return task.done(); });
}

bool lacks(const Condition& waiting, const RankSet& gone) {
  const std::vector<int> missing = waiting.missing();
  const auto is_gone = [&](int rank) { return gone.has(rank); };
  return waiting.anyWillDo() && !missing.empty()
             ? std::all_of(missing.begin(), missing.end(), is_gone)
             : std::any_of(missing.begin(), missing.end(), is_gone);
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
  forEachCondition(op, [&](const Condition& waiting) { any |= lacks(waiting, gone); });
  return any;
}

Failure peerFailed(const Membership& members, const Op& op, const std::vector<Departure>& gone) {
  const std::vector<int> missing = missingFor(op);
  const auto is_missing = [&](const Departure& departure) {
    return std::count(missing.begin(), missing.end(), departure.rank) > 0;
  };
  const auto died = [](const Departure& departure) {
    return departure.how == Departure::How::kDied;
  };
  // A rank may have left because another one died.
  const bool lacks_dead = std::any_of(gone.begin(), gone.end(), [&](const Departure& departure) {
    return died(departure) && is_missing(departure);
  });
  Failure failure{Cause::kPeerFailed, {}, "", true};
  for (const Departure& departure : gone) {
    if (died(departure) || (!lacks_dead && is_missing(departure))) {
      failure.ranks.push_back(members.global(departure.rank));
      failure.has_left = failure.has_left && departure.how == Departure::How::kLeft;
      failure.reason +=
          (failure.reason.empty() ? "" : "; ") + departure.describe(failure.ranks.back());
    }
  }
  std::sort(failure.ranks.begin(), failure.ranks.end());
  return failure;
}

}  // namespace bluefog
