#include "process_group/device/DeviceCalls.hpp"

#include <c10/util/Exception.h>

#include <exception>
#include <stdexcept>
#include <utility>

#include "core/Env.hpp"
#include "core/Interruption.hpp"

namespace bluefog {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{20};
// When the backend has failed, the reason may be the death of a rank. This rank hears of it within
// that time.
constexpr std::chrono::milliseconds kUntilTheReason{1000};

}  // namespace

// A CallTurn is the right to make a call, which one thread has at a time, for as long as the
// CallTurn exists. Its constructor waits until no other thread has one. It throws if this thread
// has one, or if the program is interrupted.
class DeviceCalls::CallTurn {
 public:
  CallTurn(DeviceCalls& calls, const DeviceCall& call)
      : calls_(calls), lock_(calls.turns_, std::defer_lock) {
    const std::thread::id self = std::this_thread::get_id();
    if (calls.owner_ == self) {  // a signal handler, run during a call's wait, makes another call
      throw std::runtime_error(calls.engine_.members().who() + " " + call.name() +
                               ": called inside of another such call");
    }
    while (!lock_.try_lock_for(kBetweenLooks)) {
      calls.language_.lookForInterruption();
    }
    calls.owner_ = self;
  }
  ~CallTurn() { calls_.owner_ = std::thread::id(); }
  CallTurn(const CallTurn&) = delete;
  CallTurn& operator=(const CallTurn&) = delete;

 private:
  DeviceCalls& calls_;
  std::unique_lock<std::timed_mutex> lock_;
};

DeviceCalls::DeviceCalls(Engine& engine, const Language& language, FlightLog& log,
                         bool returns_when_done, std::function<void()> abort)
    : engine_(engine),
      language_(language),
      log_(log),
      failure_(std::make_shared<DeviceFailure>(engine, std::move(abort))),
      returns_when_done_(returns_when_done),
      checks_before_(env::checksBefore()) {}

DeviceCalls::WorkPtr DeviceCalls::run(const DeviceCall& call, std::chrono::milliseconds timeout,
                                      const std::function<WorkPtr(Notices&)>& exchange) {
  const CallTurn turn(*this, call);
  check(call.name());
  const Notices::Waits waits{.before = call.needs_rows || checks_before_ || returns_when_done_,
                             .after = checks_before_};
  Notices notices(engine_, language_, log_, failure_, exchanges_, call, waits,
                  Deadline::in(timeout));
  try {
    return exchange(notices);
  } catch (const Error&) {
    std::rethrow_exception(language_.raised(std::current_exception()));
  } catch (...) {
    if (!notices.areTold()) {
      throw;
    }
    breakOff(notices);
  }
}

void DeviceCalls::check(std::string_view call) const {
  try {
    failure_->first()->check(call);
  } catch (const Error&) {
    std::rethrow_exception(language_.raised(std::current_exception()));
  }
}

// The neighbors rely on this rank by then, so the failure ends the calls of all ranks. If the
// backend has failed, the failure of another rank may be the reason, and says more than the backend
// does. It says no more if that rank has only broken off, too.
void DeviceCalls::breakOff(const Notices& notices) {
  const Membership& members = engine_.members();
  const std::string call = notices.title();
  const auto brokenOff = [&](const std::exception& error) {
    return FirstFailure::of(call, failedHere(members, error));
  };
  const std::string context =
      members.who() + " " + call + ": failed in the exchange; " + FirstFailure::advice();
  try {
    throw;
  } catch (const Interruption&) {
    failure_->set(brokenOff(std::runtime_error("interrupted")));
    throw;
  } catch (c10::Error& error) {
    if (failure_->isSetWithin(kUntilTheReason) &&
        failure_->first()->get()->cause != Cause::kAborted) {
      check(call);
    }
    failure_->set(brokenOff(error));
    error.add_context(context);
    throw;
  } catch (const std::exception& error) {
    if (failure_->isSetWithin(kUntilTheReason)) {
      check(call);
    }
    failure_->set(brokenOff(error));
    C10_THROW_ERROR(DistBackendError, context + ": " + error.what());
  }
}

}  // namespace bluefog
