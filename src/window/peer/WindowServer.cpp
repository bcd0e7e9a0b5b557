#include "window/peer/WindowServer.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include "algorithms/Algorithms.hpp"
#include "core/Reduce.hpp"
#include "window/peer/MappedMutex.hpp"

namespace bluefog {
namespace {

std::shared_ptr<MessageBuffer> replyOf(const WindowReply& answer) {
  auto message = std::make_shared<MessageBuffer>();
  std::memcpy(message->make(sizeof answer), &answer, sizeof answer);
  return message;
}

std::shared_ptr<MessageBuffer> tensorOf(const Window& window) {
  const WindowReply answer{.p = window.p()};
  auto message = std::make_shared<MessageBuffer>();
  std::byte* data = message->make(sizeof answer + window.shape().bytes());
  std::memcpy(data, &answer, sizeof answer);
  window.copyTensor(data + sizeof answer);
  return message;
}

WindowReply take(SlotMutex& mutex) {
  const std::optional<int> holder = mutex.take();
  return holder ? WindowReply{.status = WindowReply::ReplyStatus::kHeld, .holder = *holder}
                : WindowReply{};
}

// A peer is given up when this many of its requests in a row have failed.
constexpr int kMostFailures = 100;

std::shared_ptr<MessageOp> serviceOp() {
  return std::make_shared<MessageOp>(kWindowMessage, Deadline::never(), OpRole::kService);
}

}  // namespace

WindowServer::WindowServer(Engine& engine, std::shared_ptr<PeerLiveness> liveness)
    : engine_(engine),
      liveness_(std::move(liveness)),
      spares_(static_cast<size_t>(engine.members().size)),
      failures_(spares_.size()) {}

void WindowServer::open(const std::vector<int>& peers) {
  for (const int peer : peers) {
    await(peer);
  }
}

void WindowServer::add(uint64_t number, Window& window) {
  const std::lock_guard lock(mutex_);
  windows_[number] = &window;
}

void WindowServer::add(uint64_t number, RawPart& part) {
  const std::lock_guard lock(mutex_);
  raw_parts_[number] = &part;
}

void WindowServer::remove(uint64_t number) {
  const std::lock_guard lock(mutex_);
  windows_.erase(number);
  raw_parts_.erase(number);
  if (windows_.empty() && raw_parts_.empty()) {
    spares_ = std::vector<MessageBuffer>(spares_.size());
  }
}

void WindowServer::await(int peer) {
  auto op = serviceOp();
  const auto message = std::make_shared<MessageBuffer>();
  op->tasks.push_back(neighborGather(engine_.mailbox(), *op, {peer}, kRequests,
                                     [this, peer, message](const auto& bytes) {
                                       swapSpare(peer, *message);
                                       return std::vector<std::byte*>{message->make(bytes.front())};
                                     }));
  op->finished = [self = shared_from_this(), peer, message](const Op& ended) {
    self->receive(peer, ended, *message);
  };
  engine_.post(op, Engine::Who::kEngine);
}

// Exchanges the buffer for the one of the peer's last message, because fresh pages would cost a
// large message more than its copy.
void WindowServer::swapSpare(int peer, MessageBuffer& message) {
  const std::lock_guard lock(mutex_);
  std::swap(message, spares_[static_cast<size_t>(peer)]);
}

// Returns whether the operation failed because this very peer has gone. The death of another rank
// makes operations fail, too.
bool WindowServer::hasGone(int peer, const Op& op) const {
  const std::optional<Error> error = errorIn(op.error);
  return error && error->cause() == Cause::kPeerFailed &&
         std::count(error->ranks().begin(), error->ranks().end(), engine_.members().global(peer)) >
             0;
}

void WindowServer::receive(int peer, const Op& op, MessageBuffer& message) {
  int& failures = failures_[static_cast<size_t>(peer)];
  failures = op.error ? failures + 1 : 0;
  if (hasGone(peer, op) || failures > kMostFailures) {
    liveness_->note(peer);
    return;
  }
  try {
    // A message that its sender has broken off asks for nothing.
    if (const auto request = op.error ? std::nullopt : message.header<WindowRequest>()) {
      answer(peer, request->answer, serve(peer, *request, message));
    }
    swapSpare(peer, message);
    await(peer);
  } catch (const std::exception&) {
    liveness_->note(peer);  // the group has ended, or this process is out of memory
  }
}

void WindowServer::answer(int peer, int64_t tag, std::shared_ptr<MessageBuffer> message) {
  auto op = serviceOp();
  addSend(engine_.mailbox(), *op, {peer, tag, ConstSpans(message->whole())});
  op->memory = std::move(message);
  engine_.post(op, Engine::Who::kEngine);
}

std::shared_ptr<MessageBuffer> WindowServer::serve(int peer, const WindowRequest& request,
                                                   const MessageBuffer& message) {
  try {
    return perform(peer, request, message);
  } catch (const std::bad_alloc&) {
    return replyOf({.status = WindowReply::ReplyStatus::kNoMemory});
  } catch (const std::exception&) {  // the window's device has failed
    return replyOf({.status = WindowReply::ReplyStatus::kFailed});
  }
}

std::shared_ptr<MessageBuffer> WindowServer::perform(int peer, const WindowRequest& request,
                                                     const MessageBuffer& message) {
  const std::lock_guard lock(mutex_);
  if (request.kind == WindowRequest::RequestKind::kWrite ||
      request.kind == WindowRequest::RequestKind::kSignal) {
    return replyOf(performRaw(peer, request, message));
  }
  const auto found = windows_.find(request.window);
  if (found == windows_.end()) {
    return replyOf({.status = WindowReply::ReplyStatus::kNoSuchWindow});
  }
  Window& window = *found->second;
  const WindowShape& shape = window.shape();
  MappedMutex mutex(window.mutexWith(peer), peer, *liveness_);
  switch (request.kind) {
    case WindowRequest::RequestKind::kTakeMutex:
      return replyOf(take(mutex));
    case WindowRequest::RequestKind::kLetMutexGo:
      if (window.mutexWith(peer).holder() == peer) {
        mutex.letGo();
      }
      return replyOf({});
    case WindowRequest::RequestKind::kGet:
      return tensorOf(window);
    default:
      break;
  }
  if (message.bytesOfBody<WindowRequest>() != shape.bytes()) {
    return replyOf({.status = WindowReply::ReplyStatus::kWrongSize});
  }
  const SlotUpdate what{shape.dtype, shape.count, message.body<WindowRequest>(), request.weight,
                        request.has_p != 0 ? std::optional(request.p) : std::nullopt};
  Slot slot = window.slotOf(peer);
  request.kind == WindowRequest::RequestKind::kAccumulate ? slot.accumulate(what) : slot.put(what);
  return replyOf({});
}

// Does what is asked of a raw window, and returns the reply. The caller holds the lock.
WindowReply WindowServer::performRaw(int peer, const WindowRequest& request,
                                     const MessageBuffer& message) {
  const auto found = raw_parts_.find(request.window);
  if (found == raw_parts_.end()) {
    return {.status = WindowReply::ReplyStatus::kNoSuchWindow};
  }
  RawPart& part = *found->second;
  if (request.kind == WindowRequest::RequestKind::kSignal) {
    part.signal(peer);
  } else if (!part.write(request.at, message.body<WindowRequest>(),
                         message.bytesOfBody<WindowRequest>())) {
    return {.status = WindowReply::ReplyStatus::kWrongSize};
  }
  return {};
}

}  // namespace bluefog
