#include "window/peer/MessagePeerWindow.hpp"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "algorithms/Algorithms.hpp"

namespace bluefog {
namespace {

// A rank asks at this interval for a mutex that another rank holds.
constexpr std::chrono::milliseconds kAskAgain{1};

bool isOfMutex(WindowRequest::RequestKind kind) {
  return kind == WindowRequest::RequestKind::kTakeMutex ||
         kind == WindowRequest::RequestKind::kLetMutexGo;
}

const char* nameOf(WindowRequest::RequestKind kind) {
  switch (kind) {
    case WindowRequest::RequestKind::kPut:
      return "win_put";
    case WindowRequest::RequestKind::kAccumulate:
      return "win_accumulate";
    case WindowRequest::RequestKind::kGet:
      return "win_get";
    case WindowRequest::RequestKind::kWrite:
      return "Window.put";
    case WindowRequest::RequestKind::kSignal:
      return "Window.signal";
    default:
      return "win_mutex";
  }
}

}  // namespace

// A Talk is one request and its answer. It lives as long as the request's operation.
struct WindowClient::Talk {
  WindowRequest request;
  MessageBuffer answer;
  std::shared_ptr<void> kept;
};

WindowClient::WindowClient(std::shared_ptr<Engine> engine, int peer, uint64_t window,
                           std::string name, std::chrono::milliseconds timeout, Cause freed,
                           std::function<void()> dropped)
    : engine_(std::move(engine)),
      peer_(peer),
      window_(window),
      name_(std::move(name)),
      timeout_(timeout),
      freed_(freed),
      dropped_(std::move(dropped)) {}

PendingOp WindowClient::ask(WindowRequest request, ConstSpan data, const PeerWindow::Issue& issue,
                            Then then) {
  auto talk = std::make_shared<Talk>(Talk{request, {}, issue.kept});
  talk->request.window = window_;
  talk->request.answer = static_cast<int64_t>(window_ << 32 | ++asked_);
  // No call hears of a mutex that is let go.
  const bool is_service = request.kind == WindowRequest::RequestKind::kLetMutexGo;
  auto op = std::make_shared<MessageOp>(kWindowMessage, deadlineOf(request.kind, issue),
                                        is_service ? OpRole::kService : OpRole::kCall);
  op->title = nameOf(request.kind) + (name_.empty() ? "" : " '" + name_ + "'");
  ConstSpans message(
      ConstSpan{reinterpret_cast<const std::byte*>(&talk->request), sizeof(WindowRequest)});
  message.add(data);
  addSend(engine_->mailbox(), *op, {peer_, kRequests, std::move(message)});
  op->tasks.push_back(hear(engine_->mailbox(), *op, peer_, talk));
  op->epilogue = [self = shared_from_this(), talk, then = std::move(then)] {
    const std::optional<WindowReply> answer = talk->answer.header<WindowReply>();
    if (!answer) {
      throw self->failure(Cause::kMismatch, "has damaged an answer");
    }
    self->check(*answer);
    if (then) {
      then(*answer, talk->answer);
    }
  };
  op->memory = talk;
  if (!isOfMutex(request.kind)) {
    op->finished = [self = shared_from_this()](const Op& ended) {
      const std::optional<Error> error = errorIn(ended.error);
      if (error && error->cause() == Cause::kPeerFailed) {
        self->dropped_();
      }
    };
  }
  try {
    engine_->post(op, issue.who);
  } catch (...) {
    op->release();
    throw;
  }
  return op;
}

// Waits for the answer, which comes only if all of the request was sent.
Task WindowClient::hear(Mailbox& mailbox, const MessageOp& op, int peer,
                        std::shared_ptr<Talk> talk) {
  const std::vector<int> source(1, peer);
  co_await WaitUntil([&op] { return op.tasks.front().done(); }, [&source] { return source; });
  Allocate make = [talk](const std::vector<size_t>& bytes) {
    return std::vector<std::byte*>(1, talk->answer.make(bytes.front()));
  };
  co_await Join(neighborGather(mailbox, op, source, talk->request.answer, std::move(make)));
}

// Letting a mutex go has no deadline, because a mutex that is not let go would be lost.
Deadline WindowClient::deadlineOf(WindowRequest::RequestKind kind,
                                  const PeerWindow::Issue& issue) const {
  return kind == WindowRequest::RequestKind::kLetMutexGo
             ? Deadline::never()
             : Deadline::in(issue.timeout.value_or(timeout_));
}

void WindowClient::check(const WindowReply& answer) const {
  switch (answer.status) {
    case WindowReply::ReplyStatus::kNoMemory:
      throw failure(Cause::kAborted, "has no memory for it");
    case WindowReply::ReplyStatus::kFailed:
      throw failure(Cause::kAborted, "could not do it: its device has failed");
    case WindowReply::ReplyStatus::kNoSuchWindow:
      throw failure(freed_, kNoSuchWindow);
    case WindowReply::ReplyStatus::kWrongSize:
      throw failure(Cause::kMismatch, "has a window of another size");
    default:
      return;
  }
}

Failure WindowClient::failure(Cause cause, const std::string& what) const {
  const int rank = engine_->members().global(peer_);
  return {cause, {rank}, "rank " + std::to_string(rank) + " " + what};
}

void WindowClient::await(const PendingOp& pending) {
  engine_->wait(*pending, Deadline::never());
  if (pending->error) {
    std::rethrow_exception(pending->error);
  }
}

std::optional<int> MessageMutex::take() {
  const auto holder = std::make_shared<std::optional<int>>();
  const auto hear = [holder](const WindowReply& answer, const MessageBuffer&) {
    if (answer.status == WindowReply::ReplyStatus::kHeld) {
      *holder = answer.holder;
    }
  };
  try {
    client_->await(client_->ask({.kind = WindowRequest::RequestKind::kTakeMutex}, {},
                                {Engine::Who::kCaller, {}}, hear));
  } catch (...) {
    letGo();  // the lost answer may have said that this rank holds it
    throw;
  }
  return *holder;
}

void MessageMutex::await(int /*holder*/, std::chrono::nanoseconds limit) {
  std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(limit, kAskAgain));
}

// Nobody waits for the answer: the peer does what this rank asks next after it.
void MessageMutex::letGo() noexcept {
  try {
    client_->ask({.kind = WindowRequest::RequestKind::kLetMutexGo}, {}, {Engine::Who::kEngine, {}});
  } catch (const std::exception&) {
    // The group has ended, and the mutex with it.
  }
}

PendingOp MessagePeerWindow::put(const SlotUpdate& what, Into into, const Issue& issue) {
  const WindowRequest request{.kind = into == Into::kAdd ? WindowRequest::RequestKind::kAccumulate
                                                         : WindowRequest::RequestKind::kPut,
                              .has_p = what.p.has_value(),
                              .weight = what.weight,
                              .p = what.p.value_or(0)};
  return client_->ask(
      request, {static_cast<const std::byte*>(what.data), what.count * width(what.dtype)}, issue);
}

PendingOp MessagePeerWindow::get(double weight, bool with_p, Engine::Who who) {
  const auto fill = [own = own_, owner = owner_, client = client_, weight, with_p](
                        const WindowReply& answer, const MessageBuffer& message) {
    const WindowShape& shape = own->shape();
    if (message.bytesOfBody<WindowReply>() != shape.bytes()) {
      throw client->failure(Cause::kMismatch, "has a window of another size");
    }
    own->fill(owner, {shape.dtype, shape.count, message.body<WindowReply>(), weight,
                      with_p ? std::optional(weight * answer.p) : std::nullopt});
  };
  return client_->ask({.kind = WindowRequest::RequestKind::kGet}, {}, {who, {}}, fill);
}

}  // namespace bluefog
