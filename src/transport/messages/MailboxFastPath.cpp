// Messages of one frame, past all tasks: see FastPath.
#include "transport/messages/Mailbox.hpp"

#include <algorithm>

namespace bluefog {

bool Mailbox::isQuiet() const {
  return expected_.isEmpty() && unexpected_.isEmpty() && late_mismatches_.empty() &&
         std::none_of(lanes_.begin(), lanes_.end(),
                      [](const Lane& lane) { return lane.answers.anyHasCome(); });
}

bool Mailbox::maySend(int destination, size_t bytes) {
  Lane& to = lane(destination);
  return to.departing.empty() && to.outstanding + charge(bytes) <= kCredit && to.out.room();
}

void Mailbox::send(int destination, const Frame& frame, ConstSpan data) {
  Lane& to = lane(destination);
  Frame& slot = *to.out.slot();
  slot = frame;
  store_policy_.write(payloadOf(&slot), data.data, data.bytes);
  sendOff(destination, slot);
}

const Frame* Mailbox::next(int source, const Signature& signature, const MatchKey& key) {
  const Frame* front = lane(source).in.front();
  if (front == nullptr) {
    return nullptr;
  }
  const Frame frame = *front;  // a damaged peer may write into it while it is read
  const bool fits = frame.type == FrameType::kEager && frame.tag == key.tag &&
                    frame.number == key.number && frame.signature == signature &&
                    frame.bytes == signature.bytes();
  if (!fits) {
    return nullptr;
  }
  lane(source).deadlock_notice.reset();
  lane(source).unseen_from = frame.id + 1;
  store_policy_.observe(frame.written, payloadOf(front), frame.bytes);
  return front;
}

void Mailbox::drop(int source, size_t bytes) {
  credit(source, charge(bytes));
  popLane(source);
}

}  // namespace bluefog
