// What ranks tell each other of messages, and their operations hear of it.
#include "transport/messages/Mailbox.hpp"

#include <algorithm>
#include <utility>

namespace bluefog {

GivenUp Mailbox::givenUpFor(const Failure& failure) const {
  return {failure.cause, members_.among(failure.ranks)};
}

Failure Mailbox::failureOf(int peer, const GivenUp& theirs) const {
  const int who = members_.global(peer);
  const std::string rank = "rank " + std::to_string(who);
  std::vector<int> blamed = members_.global(theirs.blamed.below(members_.size));
  if (blamed.empty()) {
    blamed.push_back(who);
  }
  if (theirs.why == Cause::kMismatch) {
    return {theirs.why, blamed, "ranks did not agree on the matching operation of " + rank};
  }
  const bool for_another = blamed != std::vector{who};
  return {theirs.why, blamed,
          rank + " had already given up the matching operation" +
              (for_another ? ": nothing from " + rankList(blamed) : "")};
}

Failure Mailbox::withdrawn(const Departing& message) const {
  return failureOf(message->destination, message->answer.given_up);
}

std::optional<LateRefusal> Mailbox::takeLateRefusal(
    const std::function<bool(const LateRefusal&)>& wanted) {
  const auto first = std::find_if(late_refusals_.begin(), late_refusals_.end(), wanted);
  if (first == late_refusals_.end()) {
    return std::nullopt;
  }
  LateRefusal refusal = std::move(*first);
  late_refusals_.erase(first);
  return refusal;
}

void Mailbox::tellElsewhere(int peer, const Elsewhere& here) {
  answer(peer, {.id = here.waits, .answer = Grant::kElsewhere, .signature = here.called});
}

std::optional<Elsewhere> Mailbox::takeElsewhere(int peer) {
  return std::exchange(lane(peer).elsewhere, std::nullopt);
}

void Mailbox::breakOff(int peer, uint64_t id, Grant::Answer how, const GivenUp& why) {
  if (!is_silent_) {
    answer(peer, {.id = id, .answer = how, .given_up = why});
  }
}

void Mailbox::answer(int peer, const Grant& grant) {
  lane(peer).answers.owe(grant);
  sendAnswers(peer);
}

bool Mailbox::sendAnswers(int peer) {
  const bool moved = lane(peer).answers.send();
  if (moved) {
    bells_.touch(peer);
  }
  return moved;
}

bool Mailbox::drainAnswers(int peer) {
  Answers& answers = lane(peer).answers;
  bool moved = false;
  while (true) {
    if (!answers.isSound()) {
      throw damaged(members_, peer, "its answers");
    }
    const std::optional<Grant> grant = answers.take();
    if (!grant) {
      break;
    }
    hear(peer, *grant);
    moved = true;
  }
  if (moved) {
    bells_.touch(peer);
  }
  return moved;
}

void Mailbox::hear(int peer, const Grant& grant) {
  Lane& from = lane(peer);
  switch (grant.answer) {
    case Grant::kElsewhere:
      from.elsewhere = {grant.id, grant.signature};
      return;
    case Grant::kBrokenOff:
      hearBrokenOff(peer, grant);
      return;
    case Grant::kCredit:
      from.outstanding -= std::min<size_t>(grant.id, from.outstanding);
      return;
    default:
      break;
  }
  const auto found = from.unanswered.find(grant.id);
  if (found != from.unanswered.end()) {
    found->second->answer = grant;
    if (grant.answer == Grant::kTaken) {
      sent_.fetch_add(found->second->bytes, std::memory_order_relaxed);
    }
    stirred_.push_back(operationOf(grant.id));
  } else if (grant.answer == Grant::kRefused) {
    noteLateRefusal(peer, grant);
  } else if (grant.answer == Grant::kNotReceived && grant.number > aligned_) {
    tellLater({operationOf(grant.id), notReceived(peer, grant.signature, grant.number), true,
               grant.signature.where == Where::kDevice});
  }
}

void Mailbox::hearBrokenOff(int peer, const Grant& grant) {
  Lane& from = lane(peer);
  const auto found = from.coming.find(grant.id);
  if (found != from.coming.end()) {
    found->second->broken_off = grant.given_up;
    stirred_.push_back(found->second->receiver);
  } else if (grant.id >= from.unseen_from) {
    from.broken_off.emplace(grant.id, grant.given_up);
  }
}

void Mailbox::tellLater(LateRefusal refusal) {
  if (late_refusals_.size() < kMostLateRefusals) {
    late_refusals_.push_back(std::move(refusal));
  }
}

std::optional<Signature> Mailbox::uncalledFrom(int peer) const {
  const Inbound* message = unexpected_.from(peer);
  const bool is_none_of_calls = message == nullptr || message->line.kind == OpKind::kService;
  return is_none_of_calls ? std::nullopt : std::optional(message->signature);
}

void Mailbox::giveUpOn(const RankSet& gone) {
  for (int peer : gone.below(members_.size)) {
    lane(peer).is_gone = true;
  }
}

RankSet Mailbox::silent(const RankSet& gone) {
  RankSet silent;
  for (int peer : gone.below(members_.size)) {
    if (lane(peer).in.front() == nullptr) {
      silent.add(peer);
    }
  }
  return silent;
}

void Mailbox::noteLateRefusal(int peer, const Grant& grant) {
  const int who = members_.global(peer);
  const uint64_t sequence = operationOf(grant.id);
  const bool is_of_call = grant.number > 0;
  const std::string message = is_of_call ? "message in call #" + std::to_string(grant.number)
                                         : "message #" + std::to_string(sequence);
  tellLater({sequence,
             {Cause::kMismatch,
              {who},
              "rank " + std::to_string(who) + " could not take this rank's " + message +
                  ": it called " + name(grant.signature) + details(grant.signature)},
             is_of_call});
}

}  // namespace bluefog
