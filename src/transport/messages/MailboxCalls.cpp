// Which calls of neighbors this rank has made, and what comes too late for one, or not at all.
#include <algorithm>
#include <utility>

#include "transport/messages/Mailbox.hpp"

namespace bluefog {

void Mailbox::noteCall(const Counter& counter, uint64_t number) {
  calls_.set(counter, std::max(number, calls_.of(counter)));
  if (unexpected_.isEmpty()) {
    return;
  }
  for (int peer = 0; peer < members_.size; ++peer) {
    if (counter.partner < 0 || counter.partner == peer) {
      turnAway(unexpected_.upTo(counter, number, peer));
    }
  }
}

bool Mailbox::hasSentFirsts() const {
  return std::all_of(lanes_.begin(), lanes_.end(),
                     [](const Lane& lane) { return lane.is_gone || lane.departing.empty(); });
}

void Mailbox::turnAway(const std::vector<std::shared_ptr<ReceiveState>>& unexpected) {
  for (const auto& message : unexpected) {
    unexpected_.remove(*message);
    leave(*message);
    turnAway(*message);
  }
}

// Its sender hears that nobody received it.
void Mailbox::turnAway(ReceiveState& message) {
  if (message.has_second) {
    expectSecond(message);  // and abandons it
  }
  if (message.key.number > aligned_) {
    turnDown(message, {.id = message.id,
                       .kind = ControlMessage::kNotReceived,
                       .signature = message.signature,
                       .number = message.key.number});
  } else {
    turnDown(message, {.id = message.id, .kind = ControlMessage::kWithdrawn, .cancel_reason = {}});
  }
}

void Mailbox::notePassed(const Counter& counter, uint64_t number, int source) {
  for (const auto& message : expected_.upTo(counter, number, source)) {
    if (message->abandoned) {
      expected_.remove(*message);
      --lane(source).abandoned;
    } else if (!std::exchange(message->is_passed, true)) {
      runnable_.push_back(message->receiver);
    }
  }
}

std::optional<uint64_t> Mailbox::callsMadeBy(int peer) const {
  return segments_.hosts().isHere(peer)
             ? std::optional(segments_.shared().callsMade(peer).number.load())
             : std::nullopt;
}

void Mailbox::lookForPassed() {
  if (expected_.isEmpty()) {
    return;
  }
  for (const int peer : segments_.hosts().here()) {
    if (peer == rank()) {
      continue;
    }
    // First the number: whatever belongs to those calls is in the lane by then.
    const uint64_t made = segments_.shared().callsMade(peer).number.load(std::memory_order_acquire);
    if (lane(peer).in.front() == nullptr) {
      notePassed(Counter(), made, peer);
    }
  }
}

void Mailbox::align(uint64_t number) {
  calls_.align(number);
  aligned_ = number;
  std::erase_if(late_mismatches_, [](const LateMismatch& mismatch) { return mismatch.is_of_call; });
  for (int peer = 0; peer < members_.size; ++peer) {
    turnAway(unexpected_.ofCallsUpTo(number, peer));
    for (const auto& message : expected_.ofCallsUpTo(number, peer)) {
      if (message->abandoned) {
        expected_.remove(*message);
        --lane(peer).abandoned;
      }
    }
  }
}

Failure Mailbox::passed(const ReceiveState& message) const {
  const std::string source = std::to_string(members_.global(message.source));
  const std::string self = std::to_string(members_.global(rank()));
  return {Cause::kMismatch,
          {members_.global(message.source)},
          "ranks do not agree on the edge " + source + " -> " + self + ": rank " + self +
              " receives along it in call #" + std::to_string(message.key.number) + ", and rank " +
              source + " has made that call without sending to it"};
}

Failure Mailbox::notReceived(int receiver, const Signature& sent, uint64_t number) const {
  const std::string source = std::to_string(members_.global(rank()));
  const std::string other = std::to_string(members_.global(receiver));
  return {Cause::kMismatch,
          {members_.global(receiver)},
          "ranks do not agree on the edge " + source + " -> " + other + ": rank " + source +
              " sent along it in call #" + std::to_string(number) + ", " + name(sent) +
              details(sent) + ", and rank " + other +
              " has made that call without receiving from it"};
}

}  // namespace bluefog
