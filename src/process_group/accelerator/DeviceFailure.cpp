#include "process_group/accelerator/DeviceFailure.hpp"

#include <c10/util/Exception.h>

#include <cstddef>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "algorithms/Algorithms.hpp"
#include "transport/Verdict.hpp"

namespace bluefog {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{5};
// The tag of what a rank tells of its failure.
constexpr int64_t kFailureTag = 1;

std::shared_ptr<Op> serviceOp() {
  constexpr Signature kText{.kind = OpKind::kAgreement, .dtype = Dtype::kUInt8, .count = 1};
  auto op = std::make_shared<Op>(Op::Kind::kMessage, kText, Deadline::never());
  op->is_service = true;
  return op;
}

}  // namespace

std::string DeviceFailure::advice() {
  return "calls with tensors on the accelerator are over in this group: make a new one";
}

void DeviceFailure::listen() {
  std::call_once(listens_, [this] {
    for (int peer = 0; peer < engine_.members().size; ++peer) {
      if (peer != engine_.members().rank) {
        listenTo(peer);
      }
    }
  });
}

void DeviceFailure::listenTo(int peer) {
  const auto op = serviceOp();
  const auto told = std::make_shared<std::string>();
  op->scripts.push_back(
      neighborGather(engine_.mailbox(), *op, {peer}, kFailureTag, [told](const auto& bytes) {
        told->resize(bytes.front());
        return std::vector<std::byte*>{reinterpret_cast<std::byte*>(told->data())};
      }));
  op->finished = [self = shared_from_this(), told](const Op& ended) { self->hear(ended, *told); };
  engine_.post(op, Engine::Who::kEngine);
}

// A rank that leaves in order may leave others in what it has done its part of.
void DeviceFailure::hear(const Op& ended, const std::string& told) {
  if (!ended.failure) {
    setSoon(Ruling::decode(told).failure);
  } else if (ended.failure->cause == Cause::kPeerFailed && !ended.failure->has_left) {
    setSoon(*ended.failure);
  }
}

bool DeviceFailure::isFirst(const Failure& failure) {
  const std::lock_guard lock(mutex_);
  if (failure_ || engine_.hasStopped()) {
    return false;
  }
  failure_ = failure;
  return true;
}

void DeviceFailure::set(const Failure& failure) {
  if (isFirst(failure)) {
    end(failure);
  }
}

void DeviceFailure::setSoon(const Failure& failure) {
  if (!isFirst(failure)) {
    return;
  }
  const auto op = serviceOp();
  op->settleCallingBack(true);  // so that the engine goes on meanwhile
  op->finished = [self = shared_from_this(), failure](const Op&) { self->end(failure); };
  try {
    engine_.post(op, Engine::Who::kEngine);
  } catch (const std::exception&) {
    // The group has ended.
  }
}

void DeviceFailure::end(const Failure& failure) {
  try {
    for (int peer = 0; peer < engine_.members().size; ++peer) {
      if (peer != engine_.members().rank) {
        tell(peer, failure);
      }
    }
    TORCH_WARN(who_, ": ", advice(), " (", failure.reason,
               "). What such calls have under way may give wrong results.");
    abort_();
  } catch (const std::exception&) {
    // The group has ended, or the backend has: there is nothing that it could hold up.
  }
}

void DeviceFailure::tell(int peer, const Failure& failure) {
  const auto op = serviceOp();
  const auto text = std::make_shared<std::string>(Ruling{failure, 0}.encode());
  addSend(engine_.mailbox(), *op,
          {peer, kFailureTag,
           ConstSpans(ConstSpan{reinterpret_cast<const std::byte*>(text->data()), text->size()})});
  op->memory = text;
  engine_.post(op, Engine::Who::kEngine);
}

bool DeviceFailure::isSetWithin(std::chrono::milliseconds limit) const {
  const Deadline deadline = Deadline::in(limit);
  while (!get()) {
    if (deadline.passed()) {
      return false;
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return true;
}

std::optional<Failure> DeviceFailure::get() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void DeviceFailure::check(const std::string& call) const {
  if (const std::optional<Failure> failure = get()) {
    const bool is_of_it = failure->reason.starts_with(call + ": ");
    throw Error(failure->cause, failure->ranks,
                who_ + " " +
                    (is_of_it ? failure->reason + "; " + advice()
                              : call + ": " + advice() + " (" + failure->reason + ")"));
  }
}

}  // namespace bluefog
