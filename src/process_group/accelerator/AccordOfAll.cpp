// Calls in which all ranks of a group take part, or none; and how a rank leaves a call.
#include <cstddef>
#include <optional>
#include <utility>

#include "process_group/accelerator/Accord.hpp"

namespace bluefog {

// Of all ranks: each says whether it fails.
struct Accord::Meeting {
  struct Told {
    std::byte own;
    std::vector<std::byte> all;
  };
  std::shared_ptr<Op> op;
  std::shared_ptr<Told> told;
};

// When a rank has agreed with its partners that begins that now, too.
Deadline Accord::endOfAll(Deadline deadline) {
  return Deadline::in(2 * (deadline.limit() + kSlack));
}

// They meet before, where who calls something else is found at once, and after, where each says
// whether it lacks a partner: then none goes on.
Agreement Accord::agreeWithAll(const Call& call, Deadline deadline) {
  std::optional<Agreement> agreement;
  auto progress = Progress::kMeets;
  try {
    const Meeting meeting = meet(call, 1, false, deadline, Engine::Who::kCaller);
    await(*meeting.op);
    raiseErrorOf(*meeting.op);
    progress = Progress::kAsks;
    agreement = agreeWithPartners(call, deadline);
  } catch (...) {  // Ctrl-C, or who has not come to the first meeting
    leave(call, progress, deadline);
    throw;
  }
  std::vector<int> failed;
  try {
    const bool fails = agreement->error() != nullptr;
    const Meeting meeting = meet(call, 2, fails, endOfAll(deadline), Engine::Who::kCaller);
    settle(*meeting.op, *agreement);
    failed = whoFails(meeting);
  } catch (...) {  // others may have heard that this rank goes on
    loseStepWith(call.edges.partners);
    loseStepWith(call.others());
    throw;
  }
  if (!failed.empty()) {
    std::rethrow_exception(agreement->error()
                               ? agreement->error()
                               : raised(call, Cause::kMismatch, failed,
                                        "and partners on other machines do not agree on this "
                                        "call: there its error says why"));
  }
  return *agreement;
}

// Its partners get their answer; where all of the group meet, all hear of it when they meet again.
void Accord::leave(const Call& call, Progress progress, Deadline deadline) {
  try {
    if (call.of_all_with && progress == Progress::kNone) {
      (void)meet(call, 1, true, deadline, Engine::Who::kEngine);
    }
    if (progress < Progress::kAsks) {
      giveUpAll(call, deadline);
    }
    if (call.of_all_with) {
      (void)meet(call, 2, true, endOfAll(deadline), Engine::Who::kEngine);
    }
  } catch (...) {
    // the group has ended, or there is no memory for that either: they time out
  }
}

// Those of a call differ: who has left one early does not take one for the other.
Accord::Meeting Accord::meet(const Call& call, uint64_t phase, bool fails, Deadline deadline,
                             Engine::Who who) {
  Signature signature = call.signature;
  signature.detail ^= phase;
  const auto ranks = static_cast<size_t>(engine_.members().size);
  const auto told = std::make_shared<Meeting::Told>(
      Meeting::Told{std::byte(fails), std::vector<std::byte>(ranks)});
  std::vector<std::byte*> places;
  for (std::byte& place : told->all) {
    places.push_back(&place);
  }
  const auto op = std::make_shared<Op>(Op::Kind::kCollective, signature, deadline);
  op->scripts.push_back(allgather(engine_.board(), engine_.returns(), *op, &told->own,
                                  std::move(places), std::vector<size_t>(ranks, 1)));
  op->memory = told;
  engine_.post(op, who);
  log_.add(call.title, op, call.inputs, {});
  return {op, told};
}

std::vector<int> Accord::whoFails(const Meeting& meeting) const {
  raiseErrorOf(*meeting.op);
  std::vector<int> failed;
  for (size_t rank = 0; rank < meeting.told->all.size(); ++rank) {
    if (meeting.told->all[rank] != std::byte{0}) {
      failed.push_back(static_cast<int>(rank));
    }
  }
  return failed;
}

}  // namespace bluefog
