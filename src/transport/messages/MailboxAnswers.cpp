// What ranks tell each other of messages, and their operations hear of it.
#include "transport/messages/Mailbox.hpp"

#include <algorithm>
#include <utility>

namespace bluefog {

CancelReason Mailbox::cancelReasonFor(const Failure& failure) const {
  return {failure.cause, members_.among(failure.ranks)};
}

Failure Mailbox::failureOf(int peer, const CancelReason& theirs) const {
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

Failure Mailbox::withdrawn(const PostedSend& message) const {
  return failureOf(message->destination, message->answer.cancel_reason);
}

std::optional<LateMismatch> Mailbox::takeLateMismatch(
    const std::function<bool(const LateMismatch&)>& wanted) {
  const auto first = std::find_if(late_mismatches_.begin(), late_mismatches_.end(), wanted);
  if (first == late_mismatches_.end()) {
    return std::nullopt;
  }
  LateMismatch mismatch = std::move(*first);
  late_mismatches_.erase(first);
  return mismatch;
}

void Mailbox::sendDeadlockNotice(int peer, const DeadlockNotice& here) {
  answer(peer, {.id = here.waits, .kind = ControlMessage::kDeadlock, .signature = here.called});
}

std::optional<DeadlockNotice> Mailbox::takeDeadlockNotice(int peer) {
  return std::exchange(lane(peer).deadlock_notice, std::nullopt);
}

void Mailbox::breakOff(int peer, uint64_t id, ControlMessage::ControlKind how,
                       const CancelReason& why) {
  if (!is_silent_) {
    answer(peer, {.id = id, .kind = how, .cancel_reason = why});
  }
}

void Mailbox::answer(int peer, const ControlMessage& control) {
  lane(peer).answers.owe(control);
  sendAnswers(peer);
}

bool Mailbox::sendAnswers(int peer) {
  const bool moved = lane(peer).answers.send();
  if (moved) {
    wakeups_.add(peer);
  }
  return moved;
}

bool Mailbox::drainAnswers(int peer) {
  ControlChannel& answers = lane(peer).answers;
  bool moved = false;
  while (true) {
    if (!answers.isSound()) {
      throw damaged(members_, peer, "its answers");
    }
    const std::optional<ControlMessage> control = answers.take();
    if (!control) {
      break;
    }
    hear(peer, *control);
    moved = true;
  }
  if (moved) {
    wakeups_.add(peer);
  }
  return moved;
}

void Mailbox::hear(int peer, const ControlMessage& control) {
  Lane& from = lane(peer);
  switch (control.kind) {
    case ControlMessage::kDeadlock:
      from.deadlock_notice = {control.id, control.signature};
      return;
    case ControlMessage::kBrokenOff:
      hearBrokenOff(peer, control);
      return;
    case ControlMessage::kCredit:
      from.outstanding -= std::min<size_t>(control.id, from.outstanding);
      return;
    default:
      break;
  }
  const auto found = from.unanswered.find(control.id);
  if (found != from.unanswered.end()) {
    found->second->answer = control;
    if (control.kind == ControlMessage::kFinished) {
      sent_.fetch_add(found->second->bytes, std::memory_order_relaxed);
    }
    runnable_.push_back(operationOf(control.id));
  } else if (control.kind == ControlMessage::kRefused) {
    noteLateMismatch(peer, control);
  } else if (control.kind == ControlMessage::kNotReceived && control.number > aligned_) {
    tellLater({operationOf(control.id), notReceived(peer, control.signature, control.number), true,
               control.signature.where == Where::kDevice});
  }
}

void Mailbox::hearBrokenOff(int peer, const ControlMessage& control) {
  Lane& from = lane(peer);
  const auto found = from.coming.find(control.id);
  if (found != from.coming.end()) {
    found->second->broken_off = control.cancel_reason;
    runnable_.push_back(found->second->receiver);
  } else if (control.id >= from.unseen_from) {
    from.broken_off.emplace(control.id, control.cancel_reason);
  }
}

void Mailbox::tellLater(LateMismatch mismatch) {
  if (late_mismatches_.size() < kMostLateMismatches) {
    late_mismatches_.push_back(std::move(mismatch));
  }
}

std::optional<Signature> Mailbox::uncalledFrom(int peer) const {
  const ReceiveState* message = unexpected_.from(peer);
  const bool is_none_of_calls = message == nullptr || message->key.kind == OpKind::kService;
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

void Mailbox::noteLateMismatch(int peer, const ControlMessage& control) {
  const int who = members_.global(peer);
  const uint64_t sequence = operationOf(control.id);
  const bool is_of_call = control.number > 0;
  const std::string message = is_of_call ? "message in call #" + std::to_string(control.number)
                                         : "message #" + std::to_string(sequence);
  tellLater({sequence,
             {Cause::kMismatch,
              {who},
              "rank " + std::to_string(who) + " could not take this rank's " + message +
                  ": it called " + name(control.signature) + details(control.signature)},
             is_of_call});
}

}  // namespace bluefog
