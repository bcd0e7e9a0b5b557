#include "process_group/device/DeviceFailure.hpp"

#include <c10/util/Exception.h>

#include <cstddef>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "algorithms/Algorithms.hpp"
#include "transport/operations/GroupFailure.hpp"

namespace bluefog {
namespace {

constexpr std::chrono::milliseconds kPauseOfHearing{5};
// The tag of the messages by which ranks tell each other of a failure.
constexpr int64_t kFailureTag = 1;

std::shared_ptr<MessageOp> serviceOp() {
  constexpr Signature kText{.kind = OpKind::kService, .dtype = Dtype::kUInt8, .count = 1};
  return std::make_shared<MessageOp>(kText, Deadline::never(), OpRole::kService);
}

}  // namespace

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
  op->tasks.push_back(
      neighborGather(engine_.mailbox(), *op, {peer}, kFailureTag, [told](const auto& bytes) {
        told->resize(bytes.front());
        return std::vector<std::byte*>{reinterpret_cast<std::byte*>(told->data())};
      }));
  op->finished = [self = shared_from_this(), told](const Op& ended) { self->hear(ended, *told); };
  engine_.post(op, Engine::Who::kEngine);
}

// A rank that leaves in order is no failure, even if other ranks are still in an exchange: it has
// done its part of that.
void DeviceFailure::hear(const Op& ended, const std::string& told) {
  if (!ended.failure) {
    set(GroupFailure::decode(told).failure);
  } else if (ended.failure->cause == Cause::kPeerFailed && !ended.failure->has_left) {
    set(*ended.failure);
  }
}

void DeviceFailure::set(const Failure& failure) {
  if (engine_.hasStopped() || !first_->set(failure)) {
    return;
  }
  // This comes first, because the program may raise, and leave the group, before the rest is done.
  tellAll(failure);
  const auto op = serviceOp();
  op->settleCallingBack(true);  // so that end() does not run in the driving thread
  op->finished = [self = shared_from_this(), failure](const Op&) { self->end(failure); };
  try {
    engine_.post(op, Engine::Who::kEngine);
  } catch (const std::exception&) {
    if (!engine_.hasStopped()) {
      end(failure);
    }
  }
}

void DeviceFailure::end(const Failure& failure) {
  TORCH_WARN(engine_.members().who(), ": ", FirstFailure::advice(), " (", failure.reason,
             "). Calls that are under way may give wrong results.");
  try {
    abort_();
  } catch (const std::exception&) {
    // The backend has ended, so nothing waits in it.
  }
}

void DeviceFailure::tellAll(const Failure& failure) {
  const auto text = std::make_shared<std::string>(GroupFailure{failure, 0}.encode());
  const ConstSpans data(ConstSpan{reinterpret_cast<const std::byte*>(text->data()), text->size()});
  for (int peer = 0; peer < engine_.members().size; ++peer) {
    if (peer == engine_.members().rank) {
      continue;
    }
    const auto op = serviceOp();
    addSend(engine_.mailbox(), *op, {peer, kFailureTag, data});
    op->memory = text;
    try {
      engine_.post(op, Engine::Who::kEngine);
    } catch (const std::exception&) {
      return;  // the group has ended, and the other ranks hear of that
    }
  }
}

bool DeviceFailure::isSetWithin(std::chrono::milliseconds limit) const {
  const Deadline deadline = Deadline::in(limit);
  while (!first_->isSet()) {
    if (deadline.passed()) {
      return false;
    }
    std::this_thread::sleep_for(kPauseOfHearing);
  }
  return true;
}

}  // namespace bluefog
