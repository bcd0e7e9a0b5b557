#include "process_group/accelerator/DeviceCalls.hpp"

#include <c10/util/Exception.h>

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <utility>

#include "core/Env.hpp"
#include "core/Interruption.hpp"

namespace bluefog {
namespace {

constexpr std::chrono::milliseconds kBetweenInterrupts{20};
// When the backend has failed, its reason may be a rank's death, which is heard of soon after.
constexpr std::chrono::milliseconds kUntilTheReason{1000};

}  // namespace

class DeviceCalls::Turn {
 public:
  Turn(DeviceCalls& calls, const DeviceCall& call)
      : calls_(calls), lock_(calls.turns_, std::defer_lock) {
    const std::thread::id self = std::this_thread::get_id();
    if (calls.owner_ == self) {  // which waits for it, by way of a signal's handler
      throw std::runtime_error(calls.engine_.members().who() + " " + call.name() +
                               ": called inside of another such call");
    }
    while (!lock_.try_lock_for(kBetweenInterrupts)) {
      if (calls.frontend_.interrupt) {
        calls.frontend_.interrupt();
      }
    }
    calls.owner_ = self;
  }
  ~Turn() { calls_.owner_ = std::thread::id(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  DeviceCalls& calls_;
  std::unique_lock<std::timed_mutex> lock_;
};

DeviceCalls::DeviceCalls(Engine& engine, const Frontend& frontend, FlightLog& log,
                         std::function<void()> abort)
    : engine_(engine),
      frontend_(frontend),
      log_(log),
      failure_(std::make_shared<DeviceFailure>(engine, std::move(abort))),
      checks_before_(env::checksBefore()) {}

DeviceCalls::WorkPtr DeviceCalls::run(DeviceCall& call, std::chrono::milliseconds timeout,
                                      const std::function<WorkPtr(Notices&)>& exchange) {
  const Turn turn(*this, call);
  call.waits = call.waits || checks_before_;
  call.waits_after = checks_before_;
  Notices notices(engine_, log_, failure_, exchanges_, call, Deadline::in(timeout));
  try {
    failure_->check(call.name());
    return exchange(notices);
  } catch (const Error&) {
    std::rethrow_exception(frontend_.raised(std::current_exception()));
  } catch (...) {
    if (!notices.areTold()) {
      throw;
    }
    breakOff(notices, call);
  }
}

void DeviceCalls::check(const std::string& call) const {
  raising([&] { failure_->check(call); });
}

// Its neighbors rely on this rank by then.
void DeviceCalls::breakOff(const Notices& notices, const DeviceCall& call) {
  const Membership& members = engine_.members();
  const auto brokenOff = [&](const std::string& why) {
    const int rank = members.global(members.rank);
    return Failure{Cause::kAborted,
                   {rank},
                   call.name() + ": rank " + std::to_string(rank) + " broke off: " + why};
  };
  const std::string context = members.who() + " " + call.name() + ": failed in the exchange";
  try {
    throw;
  } catch (const Interruption&) {
    failure_->set(brokenOff("interrupted"));
    throw;
  } catch (c10::Error& error) {
    raiseTheReason(notices);
    failure_->set(brokenOff(error.what_without_backtrace()));
    error.add_context(context + "; " + DeviceFailure::advice());
    throw;
  } catch (const std::exception& error) {
    raiseTheReason(notices);
    failure_->set(brokenOff(error.what()));
    C10_THROW_ERROR(DistBackendError,
                    context + ": " + error.what() + "; " + DeviceFailure::advice());
  }
}

// The reason of a failure of the backend, if there is one.
void DeviceCalls::raiseTheReason(const Notices& notices) const {
  if (failure_->isSetWithin(kUntilTheReason) && failure_->get()->cause != Cause::kAborted) {
    raising(notices.check());
  }
}

void DeviceCalls::raising(const std::function<void()>& check) const {
  try {
    check();
  } catch (const Error&) {
    std::rethrow_exception(frontend_.raised(std::current_exception()));
  }
}

}  // namespace bluefog
