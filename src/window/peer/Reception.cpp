#include "window/peer/Reception.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include "algorithms/Algorithms.hpp"
#include "core/Reduce.hpp"
#include "window/peer/NearMutex.hpp"

namespace bluefog {
namespace {

std::shared_ptr<Delivery> deliveryOf(const Answer& answer) {
  auto delivery = std::make_shared<Delivery>();
  std::memcpy(delivery->make(sizeof answer), &answer, sizeof answer);
  return delivery;
}

std::shared_ptr<Delivery> tensorOf(const Window& window) {
  const Answer answer{.p = window.p()};
  auto delivery = std::make_shared<Delivery>();
  std::byte* data = delivery->make(sizeof answer + window.shape().bytes());
  std::memcpy(data, &answer, sizeof answer);
  window.copyTensor(data + sizeof answer);
  return delivery;
}

Answer take(SlotMutex& mutex) {
  const std::optional<int> holder = mutex.take();
  return holder ? Answer{.how = Answer::How::kHeld, .holder = *holder} : Answer{};
}

// A peer of which so many requests in a row have failed cannot be relied on.
constexpr int kMostFailures = 100;

std::shared_ptr<Op> serviceOp() {
  auto op = std::make_shared<Op>(Op::Kind::kMessage, kWindowMessage, Deadline::never());
  op->is_service = true;
  return op;
}

}  // namespace

Reception::Reception(Engine& engine, std::shared_ptr<Lives> lives)
    : engine_(engine),
      lives_(std::move(lives)),
      spares_(static_cast<size_t>(engine.members().size)),
      failures_(spares_.size()) {}

void Reception::open(const std::vector<int>& peers) {
  for (const int peer : peers) {
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
  if (windows_.empty()) {
    spares_ = std::vector<Delivery>(spares_.size());
  }
}

void Reception::await(int peer) {
  auto op = serviceOp();
  const auto delivery = std::make_shared<Delivery>();
  op->tasks.push_back(neighborGather(
      engine_.mailbox(), *op, {peer}, kRequests, [this, peer, delivery](const auto& bytes) {
        swapSpare(peer, *delivery);
        return std::vector<std::byte*>{delivery->make(bytes.front())};
      }));
  op->finished = [self = shared_from_this(), peer, delivery](const Op& ended) {
    self->receive(peer, ended, *delivery);
  };
  engine_.post(op, Engine::Who::kEngine);
}

// The memory of the last one: pages that are new to it would cost a large one more than the copy.
void Reception::swapSpare(int peer, Delivery& delivery) {
  const std::lock_guard lock(mutex_);
  std::swap(delivery, spares_[static_cast<size_t>(peer)]);
}

// Not another one, for whose death all operations fail.
bool Reception::hasGone(int peer, const Op& op) const {
  const std::optional<Error> error = errorIn(op.error);
  return error && error->cause() == Cause::kPeerFailed &&
         std::count(error->ranks().begin(), error->ranks().end(), engine_.members().global(peer)) >
             0;
}

void Reception::receive(int peer, const Op& op, Delivery& delivery) {
  int& failures = failures_[static_cast<size_t>(peer)];
  failures = op.error ? failures + 1 : 0;
  if (hasGone(peer, op) || failures > kMostFailures) {
    lives_->note(peer);
    return;
  }
  try {
    // Of a message that its sender has broken off there is nothing to do.
    if (const auto request = op.error ? std::nullopt : delivery.header<Request>()) {
      answer(peer, request->answer, serve(peer, *request, delivery));
    }
    swapSpare(peer, delivery);
    await(peer);
  } catch (const std::exception&) {
    lives_->note(peer);  // the group has ended, or this process has no memory for anything
  }
}

void Reception::answer(int peer, int64_t tag, std::shared_ptr<Delivery> delivery) {
  auto op = serviceOp();
  addSend(engine_.mailbox(), *op, {peer, tag, ConstSpans(delivery->whole())});
  op->memory = std::move(delivery);
  engine_.post(op, Engine::Who::kEngine);
}

std::shared_ptr<Delivery> Reception::serve(int peer, const Request& request,
                                           const Delivery& delivery) {
  try {
    return done(peer, request, delivery);
  } catch (const std::bad_alloc&) {
    return deliveryOf({.how = Answer::How::kNoMemory});
  } catch (const std::exception&) {  // of its device
    return deliveryOf({.how = Answer::How::kFailed});
  }
}

std::shared_ptr<Delivery> Reception::done(int peer, const Request& request,
                                          const Delivery& delivery) {
  const std::lock_guard lock(mutex_);
  const auto found = windows_.find(request.window);
  if (found == windows_.end()) {
    return deliveryOf({.how = Answer::How::kNoSuchWindow});
  }
  Window& window = *found->second;
  const WindowShape& shape = window.shape();
  NearMutex mutex(window.mutexWith(peer), peer, *lives_);
  switch (request.what) {
    case Request::What::kTakeMutex:
      return deliveryOf(take(mutex));
    case Request::What::kLetMutexGo:
      if (window.mutexWith(peer).holder() == peer) {
        mutex.letGo();
      }
      return deliveryOf({});
    case Request::What::kGet:
      return tensorOf(window);
    default:
      break;
  }
  if (delivery.bytesOfBody<Request>() != shape.bytes()) {
    return deliveryOf({.how = Answer::How::kWrongSize});
  }
  const Contribution what{shape.dtype, shape.count, delivery.body<Request>(), request.weight,
                          request.has_p != 0 ? std::optional(request.p) : std::nullopt};
  Slot slot = window.slotOf(peer);
  request.what == Request::What::kAccumulate ? slot.accumulate(what) : slot.put(what);
  return deliveryOf({});
}

}  // namespace bluefog
