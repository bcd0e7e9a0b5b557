#include "process_group/window/RawWindow.hpp"

#ifdef C10D_BACKEND_HAS_WINDOW

#include <ATen/ATen.h>

#include <utility>

#include "core/Deadline.hpp"
#include "process_group/host/Flat.hpp"
#include "process_group/window/RawCallNames.hpp"
#include "process_group/window/RawPutWork.hpp"
#include "process_group/window/SignalWork.hpp"
#include "process_group/window/WindowWork.hpp"

namespace bluefog {
RawWindow::~RawWindow() {
  if (registration_) {
    registration_->release();
  }
}

void RawWindow::checkGroup(const char* op) const {
  if (resources_.engine->isForked()) {
    throwForked(who(op));
  }
  TORCH_CHECK(!resources_.engine->hasStopped(), who(op), "the group has ended");
}

int RawWindow::checkRank(const char* op, int64_t rank) const {
  Validate(resources_.engine->members(), op).rank(rank, "the peer's");
  return static_cast<int>(rank);
}

std::shared_ptr<RawRegistration> RawWindow::registration() const {
  const std::lock_guard lock(mutex_);
  return registration_;
}

std::shared_ptr<RawRegistration> RawWindow::registered(const char* op) const {
  checkGroup(op);
  std::shared_ptr<RawRegistration> found = registration();
  TORCH_CHECK(found != nullptr, who(op),
              "no tensor is registered; call tensor_register(tensor) on all ranks first");
  return found;
}

void RawWindow::tensor_register(const at::Tensor& tensor, bool /*owning*/) {
  checkGroup(raw_calls::kRegister);
  const std::lock_guard turn(registering_);
  TORCH_CHECK(registration() == nullptr, who(raw_calls::kRegister),
              "the window has a tensor already; call tensor_deregister() on all ranks first");
  std::shared_ptr<RawRegistration> made = RawRegistration::make(resources_, tensor);
  const std::lock_guard lock(mutex_);
  registration_ = std::move(made);
}

void RawWindow::tensor_deregister() {
  const std::lock_guard turn(registering_);
  const auto forget = [&] {
    const std::lock_guard lock(mutex_);
    registration_ = nullptr;
  };
  if (resources_.engine->hasStopped() && registration() != nullptr) {
    registration()->release();  // Nobody is left to agree with.
    forget();
  }
  const std::shared_ptr<RawRegistration> ending = registered(raw_calls::kDeregister);
  try {
    ending->end(raw_calls::kDeregister);
  } catch (...) {
    if (ending->isClosed()) {
      forget();
    }
    throw;
  }
  forget();
}

// Does the call, and returns the Work of what it has left under way.
template <class Call>
c10::intrusive_ptr<c10d::Work> RawWindow::reach(const char* op, int rank, bool async_op,
                                                Milliseconds timeout, std::shared_ptr<void> kept,
                                                RawRegistration& registration, const Call& call) {
  PeerWindow::Issue issue{async_op ? Engine::Who::kEngine : Engine::Who::kCaller, std::move(kept)};
  if (timeout.count() > 0) {
    issue.timeout = timeout;
  }
  registration.checkLiving(op, rank);
  const std::optional<PendingOp> pending = call(registration.peer(rank), issue);
  if (!pending) {
    throw noSuchWindow(who(op), resources_.engine->members().global(rank));
  }
  registration.track(*pending);
  auto work = c10::make_intrusive<RawPutWork>(resources_.engine, *pending);
  if (!async_op) {
    work->wait();
  }
  return work;
}

c10::intrusive_ptr<c10d::Work> RawWindow::put(const at::Tensor& tensor, int64_t to, int64_t offset,
                                              bool async_op, const c10d::PutOptions& opts) {
  const std::shared_ptr<RawRegistration> registration = registered(raw_calls::kPut);
  const RawRegistration::CallLock lock = registration->beginCall(raw_calls::kPut);
  const int rank = checkRank(raw_calls::kPut, to);
  TORCH_CHECK_VALUE(tensor.defined() && tensor.is_cpu(), who(raw_calls::kPut),
                    "the tensor must be on the CPU, as the window's");
  Validate(resources_.engine->members(), raw_calls::kPut).tensor(tensor, "the tensor");
  const RawRegistration::RawShape& target = registration->shapeOf(rank);
  TORCH_CHECK_VALUE(tensor.scalar_type() == target.type, who(raw_calls::kPut), "the tensor is ",
                    typeName(tensor), ", the window's ", typeName(target.type));
  TORCH_CHECK_VALUE(
      offset >= 0 && offset <= target.elements && tensor.numel() <= target.elements - offset,
      who(raw_calls::kPut), tensor.numel(), " elements from offset ", offset, " exceed the ",
      target.elements, " elements that rank ", resources_.engine->members().global(rank),
      " has registered");
  const at::NoGradGuard no_grad;
  const auto flat = std::make_shared<Flat>(Flat::input(tensor));
  const auto at = static_cast<uint64_t>(offset) * tensor.itemsize();
  return reach(raw_calls::kPut, rank, async_op, opts.timeout, flat, *registration,
               [&](RawPeer& peer, const PeerWindow::Issue& issue) {
                 return peer.put(at, {flat->readable(), tensor.nbytes()}, issue);
               });
}

c10::intrusive_ptr<c10d::Work> RawWindow::signal(int64_t to, bool async_op,
                                                 const c10d::SignalOptions& opts) {
  const std::shared_ptr<RawRegistration> registration = registered(raw_calls::kSignal);
  const RawRegistration::CallLock lock = registration->beginCall(raw_calls::kSignal);
  const int rank = checkRank(raw_calls::kSignal, to);
  return reach(raw_calls::kSignal, rank, async_op, opts.timeout, nullptr, *registration,
               [](RawPeer& peer, const PeerWindow::Issue& issue) { return peer.signal(issue); });
}

c10::intrusive_ptr<c10d::Work> RawWindow::wait_signal(int64_t from, bool async_op,
                                                      const c10d::WaitSignalOptions& opts) {
  const std::shared_ptr<RawRegistration> registration = registered(raw_calls::kWaitSignal);
  registration->checkPlace(raw_calls::kWaitSignal);
  const int rank = checkRank(raw_calls::kWaitSignal, from);
  const Milliseconds timeout = opts.timeout.count() > 0 ? opts.timeout : resources_.timeout;
  auto work = c10::make_intrusive<SignalWork>(registration, rank, Deadline::in(timeout));
  if (!async_op) {
    work->wait();
  }
  return work;
}

at::Tensor RawWindow::map_remote_tensor(int64_t rank) {
  const std::shared_ptr<RawRegistration> registration = registered(raw_calls::kMap);
  const RawRegistration::CallLock lock = registration->beginCall(raw_calls::kMap);
  const int peer = checkRank(raw_calls::kMap, rank);
  TORCH_CHECK(resources_.engine->hosts().isHere(peer), who(raw_calls::kMap), "rank ",
              resources_.engine->members().global(peer),
              " is on another host, or shares no memory with this rank, so its memory cannot be "
              "mapped (get_attr() says SEPARATE for it); have it put its values instead");
  return registration->tensorOf(peer);
}

c10d::WindowAttr RawWindow::get_attr(int64_t rank) {
  const int peer = checkRank(raw_calls::kGetAttr, rank);
  c10d::WindowAttr attr;
  attr.access_type = resources_.engine->hosts().isHere(peer) ? c10d::WindowAccessType::UNIFIED
                                                             : c10d::WindowAccessType::SEPARATE;
  return attr;
}

}  // namespace bluefog

#endif
