#include "process_group/window/SignalWork.hpp"

#ifdef C10D_BACKEND_HAS_WINDOW

#include <algorithm>
#include <string>
#include <utility>

#include "process_group/window/RawCallNames.hpp"
#include "process_group/window/WindowSlice.hpp"
#include "process_group/window/WindowWork.hpp"
#include "transport/tuning/Backoff.hpp"

namespace bluefog {
SignalWork::SignalWork(std::shared_ptr<RawRegistration> registration, int from, Deadline deadline)
    : c10d::Work(registration->members().rank, c10d::OpType::UNKNOWN),
      registration_(std::move(registration)),
      deadline_(deadline),
      ticket_(registration_->part().queue().join(from)) {
  look();  // A signal that is there already is this call's, whenever its handle is looked at.
}

SignalWork::~SignalWork() {
  if (!has_ended_ && !registration_->resources().engine->isForked()) {
    registration_->part().queue().drop(ticket_);
  }
}

void SignalWork::checkProcess() const {
  if (registration_->resources().engine->isForked()) {
    throwForked(registration_->members().who() + " " + raw_calls::kWaitSignal + ": ");
  }
}

bool SignalWork::isSuccess() const {
  const std::lock_guard lock(mutex_);
  return has_ended_ && !error_;
}

std::exception_ptr SignalWork::exception() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

// Returns whether the wait has ended, well or not.
bool SignalWork::look() {
  checkProcess();
  const std::lock_guard lock(mutex_);
  if (has_ended_) {
    return true;
  }
  SignalQueue& queue = registration_->part().queue();
  if (queue.look(*ticket_)) {
    has_ended_ = true;
  } else if (std::exception_ptr error = whyNever()) {
    // A signal that the peer sent before it ended is there by now, so leave() looks once more.
    has_ended_ = true;
    error_ = queue.leave(ticket_) ? std::move(error) : nullptr;
  }
  return has_ended_;
}

// Returns why no signal will be waited for any longer, or null.
std::exception_ptr SignalWork::whyNever() const {
  const Membership& members = registration_->members();
  const int rank = members.global(ticket_->from());
  const std::string named = "rank " + std::to_string(rank);
  const auto who = [&] { return members.who() + " " + raw_calls::kWaitSignal + ": "; };
  if (registration_->resources().engine->hasStopped()) {
    return std::make_exception_ptr(std::runtime_error(who() + "the group has ended"));
  }
  if (registration_->isClosed()) {
    return std::make_exception_ptr(
        std::runtime_error(who() + "the window's tensor was deregistered"));
  }
  if (registration_->resources().liveness->hasEnded(ticket_->from())) {
    return std::make_exception_ptr(
        Error(Cause::kPeerFailed, {rank},
              who() + named + " died or left the group, and has sent no more signals"));
  }
  if (deadline_.passed()) {
    return std::make_exception_ptr(Error(
        Cause::kTimeout, {rank},
        who() + "timeout after " + inSeconds(deadline_.limit()) + "; no signal from " + named));
  }
  return nullptr;
}

bool SignalWork::wait(std::chrono::milliseconds timeout) {
  if (!look()) {
    await(timeout.count() > 0 ? Deadline::in(timeout) : Deadline::never());
  }
  if (const std::exception_ptr error = exception()) {
    std::rethrow_exception(error);
  }
  return true;
}

// Waits until the wait has ended. Where the peer is on another host, this thread drives the engine
// meanwhile, which hears the peer. Otherwise the peer itself wakes this rank.
void SignalWork::await(Deadline limit) {
  using Clock = Deadline::Clock;
  const WindowResources& resources = registration_->resources();
  const bool is_here = resources.engine->hosts().isHere(ticket_->from());
  const MessageOp never_posted({}, Deadline::never());
  EventCount& news = registration_->part().room().news();
  Clock::time_point now = Clock::now();
  Backoff backoff(registration_->hasOwnCore(), now);
  Deadline next_interrupt = Deadline::in(kSlice);
  bool is_tired = false;
  while (true) {
    const uint32_t ticket = is_tired ? news.prepareWait() : 0;
    if (look()) {
      return;
    }
    if (limit.passed()) {
      throw Error(Cause::kTimeout, {},
                  registration_->members().who() + " " + raw_calls::kWaitSignal +
                      ": timeout of wait() after " + inSeconds(limit.limit()) +
                      "; the wait goes on until its own deadline");
    }
    const std::chrono::nanoseconds slice =
        std::min<std::chrono::nanoseconds>({kSlice, limit.left(), deadline_.left()});
    if (!is_here) {
      const auto whole = std::chrono::ceil<std::chrono::milliseconds>(slice);
      resources.engine->wait(never_posted, Deadline::in(whole), [this] { return look(); });
    } else if (is_tired) {
      news.wait(ticket, slice);
    }
    if (next_interrupt.passed()) {
      next_interrupt = Deadline::in(kSlice);
      if (resources.interrupt) {
        resources.interrupt();
      }
    }
    now = Clock::now();
    is_tired = !backoff.pause(now);
  }
}

}  // namespace bluefog

#endif
