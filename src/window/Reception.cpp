#include "window/Reception.hpp"

#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include "algorithms/Algorithms.hpp"
#include "core/Reduce.hpp"
#include "window/NearMutex.hpp"

namespace bluefog {
namespace {

std::shared_ptr<Letter> letterOf(const Answer& answer, ConstSpan body = {}) {
  auto letter = std::make_shared<Letter>();
  std::byte* data = letter->make(sizeof answer + body.bytes);
  std::memcpy(data, &answer, sizeof answer);
  copyBytes(data + sizeof answer, body.data, body.bytes);
  return letter;
}

Answer take(SlotMutex& mutex) {
  const std::optional<int> holder = mutex.take();
  return holder ? Answer{.how = Answer::How::kHeld, .holder = *holder} : Answer{};
}

std::shared_ptr<Op> serviceOp() {
  auto op = std::make_shared<Op>(Op::Kind::kMessage, kWindowMessage, Deadline::never());
  op->is_service = true;
  return op;
}

}  // namespace

Reception::Reception(Engine& engine, std::shared_ptr<Lives> lives)
    : engine_(engine),
      lives_(std::move(lives)),
      letters_(static_cast<size_t>(engine.members().size)) {}

void Reception::open() {
  for (const int peer : engine_.hosts().elsewhere()) {
    await(peer);
  }
}

void Reception::add(uint64_t number, Window& window) {
  const std::lock_guard lock(mutex_);
  windows_[number] = &window;
}

void Reception::remove(uint64_t number) {
  const std::lock_guard lock(mutex_);
  windows_.erase(number);
}

void Reception::await(int peer) {
  auto op = serviceOp();
  op->scripts.push_back(neighborGather(
      engine_.mailbox(), *op, {peer}, kRequests, [this, peer](const std::vector<size_t>& bytes) {
        return std::vector<std::byte*>{letters_[static_cast<size_t>(peer)].make(bytes.front())};
      }));
  op->finished = [self = shared_from_this(), peer](const Op& ended) { self->receive(peer, ended); };
  engine_.post(op, Engine::Who::kEngine);
}

void Reception::receive(int peer, const Op& op) {
  const std::optional<Cause> failed = causeOf(op.error);
  if (failed == Cause::kPeerFailed) {
    lives_->note(peer);
  }
  if (failed == Cause::kPeerFailed || failed == Cause::kAborted) {
    return;
  }
  try {
    const Letter& letter = letters_[static_cast<size_t>(peer)];
    // Of a message that its sender has broken off there is nothing to do.
    if (const auto request = failed ? std::nullopt : letter.header<Request>()) {
      answer(peer, request->answer, serve(peer, *request, letter));
    }
    await(peer);
  } catch (const Error&) {
    // The group has ended.
  }
}

void Reception::answer(int peer, int64_t tag, std::shared_ptr<Letter> letter) {
  auto op = serviceOp();
  addSend(engine_.mailbox(), *op, {peer, tag, ConstSpans(letter->whole())});
  op->memory = std::move(letter);
  engine_.post(op, Engine::Who::kEngine);
}

std::shared_ptr<Letter> Reception::serve(int peer, const Request& request, const Letter& letter) {
  const std::lock_guard lock(mutex_);
  const auto found = windows_.find(request.window);
  if (found == windows_.end()) {
    return letterOf({.how = Answer::How::kNoSuchWindow});
  }
  Window& window = *found->second;
  const WindowShape& shape = window.shape();
  NearMutex mutex(window.mutexWith(peer), peer, *lives_);
  switch (request.what) {
    case Request::What::kTakeMutex:
      return letterOf(take(mutex));
    case Request::What::kLetMutexGo:
      if (window.mutexWith(peer).holder() == peer) {
        mutex.letGo();
      }
      return letterOf({});
    case Request::What::kGet:
      return letterOf({.p = window.p()}, {window.tensor(), shape.bytes()});
    default:
      break;
  }
  if (letter.bytesOfBody<Request>() != shape.bytes()) {
    return letterOf({.how = Answer::How::kWrongSize});
  }
  const Contribution what{shape.dtype, shape.count, letter.body<Request>(), request.weight,
                          request.has_p != 0 ? std::optional(request.p) : std::nullopt};
  Slot slot = window.slotOf(peer);
  request.what == Request::What::kAccumulate ? slot.accumulate(what) : slot.put(what);
  return letterOf({});
}

}  // namespace bluefog
