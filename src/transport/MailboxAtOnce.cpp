// Messages of one frame, past all scripts: see AtOnce.
#include "transport/Mailbox.hpp"

namespace bluefog {

bool Mailbox::maySend(int destination, size_t bytes) {
  Lane& to = lane(destination);
  return to.departing.empty() && to.outstanding + charge(bytes) <= kCredit && to.out.room();
}

void Mailbox::send(int destination, const Frame& frame, ConstSpan data) {
  Lane& to = lane(destination);
  Frame& slot = *to.out.slot();
  slot = frame;
  passage_.write(payloadOf(&slot), data.data, data.bytes);
  sendOff(destination, slot);
}

const Frame* Mailbox::next(int source, const Signature& signature, int64_t tag, uint64_t receiver) {
  const Frame* frame = lane(source).in.front();
  const bool fits = frame != nullptr && frame->type == FrameType::kEager && frame->tag == tag &&
                    frame->signature == signature && frame->bytes == signature.bytes() &&
                    !isUncalled(*frame, receiver, std::nullopt);
  if (fits) {
    passage_.look(frame->written, payloadOf(frame), frame->bytes);
  }
  return fits ? frame : nullptr;
}

void Mailbox::drop(int source, const Frame& frame) {
  lane(source).elsewhere.reset();
  lane(source).unseen_from = frame.id + 1;
  credit(source, charge(frame.bytes));
  popLane(source);
}

}  // namespace bluefog
