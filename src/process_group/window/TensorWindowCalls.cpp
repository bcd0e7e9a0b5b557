// This file holds the calls of a TensorWindow, which deal with each of some ranks or with its own
// memory.
#include <ATen/ATen.h>

#include <algorithm>
#include <future>
#include <limits>

#include "core/Deadline.hpp"
#include "core/Interruption.hpp"
#include "process_group/host/Flat.hpp"
#include "process_group/window/TensorWindow.hpp"
#include "process_group/window/WindowValues.hpp"
#include "window/Combine.hpp"

namespace bluefog {
namespace {

// This many operations may be remembered as under way though they have ended.
constexpr size_t kMostUnderWay = 64;

// While a rank's sources send nothing, each of its steps takes at least this long. It is longer
// than a rank is usually kept from a core that it shares, and shorter than most steps of a
// training.
constexpr std::chrono::milliseconds kPace(5);
// A wait for any of several slots looks at each of them in turn, for this long.
constexpr std::chrono::microseconds kLook(100);

// Marks the tensor as changed in place, as torch's own operations do.
void noteWritten(const at::Tensor& tensor) {
  if (!tensor.is_inference()) {
    tensor.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace

WindowIssued TensorWindow::issue(const char* op, const Ranks& ranks, const PeerCall& call) {
  WindowIssued issued;
  const auto fail = [&](const std::exception_ptr& failure) {
    if (!issued.failure) {
      issued.failure = failure;
    }
  };
  const auto issue_one = [&](const WeightedRank& peer) {
    const bool is_there = peerWindow(peer.rank).isThere();
    if (resources_.liveness->hasEnded(peer.rank) ||
        (drops_ && !is_there)) {  // the window was freed since another rank has died
      return false;
    }
    try {
      if (!is_there) {
        throw noSuchWindow(label_.who(op), label_.members.global(peer.rank));
      }
      if (PendingOp pending = sayingWhoseCall(label_, op, [&] { return call(peer); })) {
        issued.pending.push_back(std::move(pending));
      }
    } catch (const Error& error) {  // the other ranks get theirs nevertheless
      if (drops_ && error.cause() == Cause::kPeerFailed) {
        return false;
      }
      fail(std::current_exception());
    } catch (const Interruption&) {
      throw;
    } catch (const std::exception&) {  // the device has failed
      fail(std::current_exception());
    }
    return true;
  };
  for (const WeightedRank& peer : ranks) {
    if (!issue_one(peer)) {
      issued.dead.push_back(label_.members.global(peer.rank));
      counters_->noteDropped(peer.rank);
    }
  }
  return issued;
}

WindowWork::CallContext TensorWindow::callContext(const char* op) const {
  return {resources_.engine, resources_.interrupt, label_.who(op), drops_};
}

// A call is guarded if a mutex is required or this thread holds one. The mutex would not guard a
// call that is still under way when this thread lets the mutex go. (A call that is waited for has
// ended by then.)
TensorWindow::IssueMode TensorWindow::issueModeOf(const Ranks& others, bool async_op,
                                                  bool require_mutex) const {
  const auto is_held = [this, self = label_.members.rank](const WeightedRank& other) {
    return mutexes_.isMine({other.rank, self}) || mutexes_.isMine({self, other.rank});
  };
  return {async_op,
          require_mutex || (async_op && std::any_of(others.begin(), others.end(), is_held))};
}

TensorWindow::WorkPtr TensorWindow::forEachPeer(const char* op, const Ranks& ranks,
                                                const IssueMode& mode, PeerCall call) {
  const c10::OptionalDeviceGuard guard = onDevice();
  if (mode.goesOn() && stream_) {
    return forEachPeerLater(op, ranks, std::move(call));
  }
  if (stream_) {
    stream_->catchUp(op);
  }
  WindowIssued issued = issue(op, ranks, call);
  if (!mode.is_async && issued.dead.empty() && issued.pending.empty() && !issued.failure) {
    return nullptr;
  }
  if (mode.is_async && issued.failure) {
    std::rethrow_exception(issued.failure);
  }
  auto work = std::make_shared<WindowWork>(callContext(op), std::move(issued));
  if (mode.is_async) {
    return work;
  }
  work->wait();
  return nullptr;
}

TensorWindow::WorkPtr TensorWindow::forEachPeerLater(const char* op, const Ranks& ranks,
                                                     PeerCall call) {
  const auto promise = std::make_shared<std::promise<WindowIssued>>();
  auto work = std::make_shared<WindowWork>(callContext(op), promise->get_future());
  stream_->begin(
      op,
      [this, op, ranks, promise, call = std::move(call)] {
        promise->set_value(issue(op, ranks, call));
      },
      [promise](const std::exception_ptr& error) { promise->set_value({.failure = error}); });
  return work;
}

// Remembers what is under way for flush(), which waits for it even if Ctrl-C has ended the call's
// own wait.
PendingOp TensorWindow::track(PendingOp pending, const IssueMode& mode) {
  if (pending) {
    const std::lock_guard lock(mutex_);
    if (under_way_.size() >= most_under_way_) {
      std::erase_if(under_way_, [](const PendingOp& before) { return before->hasEnded(); });
      most_under_way_ = kMostUnderWay + 2 * under_way_.size();
    }
    under_way_.push_back(pending);
  }
  if (pending && mode.is_guarded) {
    resources_.engine->wait(*pending, Deadline::never());
  }
  return pending;
}

void TensorWindow::flush(const char* op) {
  checkProcess(op);
  checkGroup(op);
  if (stream_) {
    stream_->drain(op);
  }
  std::vector<PendingOp> pending;
  {
    const std::lock_guard lock(mutex_);
    pending = under_way_;
  }
  for (const PendingOp& op : pending) {
    resources_.engine->wait(*op, Deadline::never());
  }
}

TensorWindow::WorkPtr TensorWindow::put(const at::Tensor& tensor, const Ranks& destinations,
                                        const PutOptions& opts) {
  const CallLock lock(calls_);
  const char* op = opts.into == PeerWindow::Into::kAdd ? "win_accumulate" : "win_put";
  check(op, tensor);
  checkOpen(op);
  const IssueMode mode = issueModeOf(destinations, opts.async_op, opts.require_mutex);
  const auto is_far = [this](const WeightedRank& to) {
    return !resources_.engine->hosts().isHere(to.rank);
  };
  const bool copies =
      mode.goesOn() && (stream_ || std::any_of(destinations.begin(), destinations.end(), is_far));
  const at::NoGradGuard no_grad;
  const at::Tensor sent = copies ? Flat::copy(tensor).tensor() : tensor;
  const auto values = std::make_shared<WindowValues>(Flat::input(sent), space_);
  const auto call = [this, op, opts, mode, values, p = this->p()](const WeightedRank& to) {
    const ScopedLock taken(mutexes_, op, {{to.rank, label_.members.rank}}, opts.require_mutex);
    const WindowShape& shape = window_->shape();
    const auto [data, owner] = values->viewFor(peerWindow(to.rank));
    const SlotUpdate update{shape.dtype, shape.count, data, to.weight,
                            opts.with_p ? std::optional(to.weight * p) : std::nullopt};
    counters_->notePut(to.rank, tensor_.nbytes());
    return track(peerWindow(to.rank).put(update, opts.into, {mode.whoWaits(), owner}), mode);
  };
  return forEachPeer(op, destinations, mode, call);
}

TensorWindow::WorkPtr TensorWindow::get(const Ranks& sources, bool require_mutex, bool with_p,
                                        bool async_op) {
  const CallLock lock(calls_);
  checkOpen("win_get");
  const IssueMode mode = issueModeOf(sources, async_op, require_mutex);
  const auto call = [=, this](const WeightedRank& from) {
    const ScopedLock taken(mutexes_, "win_get", {{from.rank, label_.members.rank}}, require_mutex);
    return track(peerWindow(from.rank).get(from.weight, with_p, mode.whoWaits()), mode);
  };
  return forEachPeer("win_get", sources, mode, call);
}

// Does what update() does where there is no other rank.
void TensorWindow::scaleAlone(const at::Tensor& out, double weight) const {
  if (!resources_.device) {
    combine(dtypeOf(tensor_), out.mutable_data_ptr(), {tensor_.const_data_ptr()}, {weight},
            static_cast<size_t>(tensor_.numel()));
  } else if (weight == 1) {
    out.copy_(tensor_);
  } else {
    const bool is_exact = isFloating(partOf(dtypeOf(tensor_)));
    out.copy_((is_exact ? tensor_ : tensor_.to(at::kDouble)).mul(weight));
  }
}

// Returns the slots of those sources that live and that this thread does not keep out by a mutex.
std::vector<Slot> TensorWindow::slotsOfLiving(const std::vector<int>& sources) const {
  std::vector<Slot> slots;
  for (const int source : sources) {
    if (!resources_.liveness->hasEnded(source) && !mutexes_.isMine({label_.members.rank, source})) {
      slots.push_back(window_->slotOf(source));
    }
  }
  return slots;
}

// Waits as long as kPace demands. Without it, in a loop whose steps take microseconds, ranks that
// share cores would find nothing new for many steps, or what others sent many steps ago.
void TensorWindow::keepPace(const std::vector<Slot>& slots, News news) {
  using Clock = Slot::Clock;
  const Clock::time_point until = [this] {
    const std::lock_guard lock(mutex_);
    return paced_at_.value_or(Clock::now()) + kPace;
  }();
  if (news == News::kOfEach) {
    for (const Slot& slot : slots) {
      slot.awaitChange(until);
    }
  } else if (!slots.empty()) {
    const auto is_new = [](const Slot& slot) { return slot.version() != 0; };
    for (size_t looks = 0; std::none_of(slots.begin(), slots.end(), is_new); ++looks) {
      const Clock::time_point now = Clock::now();
      if (now >= until) {
        break;
      }
      slots[looks % slots.size()].awaitChange(std::min(until, now + kLook));
    }
  }
  const std::lock_guard lock(mutex_);
  paced_at_ = Clock::now();
}

void TensorWindow::awaitNews(const std::vector<int>& sources) {
  const CallLock lock(calls_);
  if (window_ != nullptr) {
    checkOpen("win_update");
    keepPace(slotsOfLiving(sources), News::kOfAny);
  }
}

at::Tensor TensorWindow::update(double self_weight, const Ranks& sources, bool reset, bool clone,
                                bool require_mutex, bool with_p) {
  const CallLock lock(calls_);
  const at::NoGradGuard no_grad;
  const at::Tensor out = clone ? at::empty_like(tensor_) : tensor_;
  if (window_ == nullptr) {
    alone_p_ *= with_p ? self_weight : 1;
    scaleAlone(out, self_weight);
    noteWritten(out);
    return out;
  }
  Window& window = opened("win_update");
  const c10::OptionalDeviceGuard guard = onDevice();
  const int self = label_.members.rank;
  std::vector<Edge> edges;
  for (const int source : ranksOf(sources)) {
    edges.emplace_back(self, source);
  }
  if (stream_) {
    stream_->catchUp("win_update");
  }
  if (reset) {
    keepPace(slotsOfLiving(ranksOf(sources)), News::kOfEach);
  }
  const ScopedLock taken(mutexes_, "win_update", std::move(edges), require_mutex);
  sayingWhoseCall(label_, "win_update", [&] {
    window.update({self_weight, sources, reset, with_p}, out.mutable_data_ptr());
  });
  noteWritten(out);
  return out;
}

at::Tensor TensorWindow::read(int writer, bool require_mutex) {
  const CallLock lock(calls_);
  Window& window = opened("win_read_neighbor");
  const c10::OptionalDeviceGuard guard = onDevice();
  const at::Tensor out = at::empty_like(tensor_);
  if (stream_) {
    stream_->catchUp("win_read_neighbor");
  }
  const ScopedLock taken(mutexes_, "win_read_neighbor", {{label_.members.rank, writer}},
                         require_mutex);
  sayingWhoseCall(label_, "win_read_neighbor",
                  [&] { window.read(writer, out.mutable_data_ptr()); });
  return out;
}

void TensorWindow::multiplyP(double factor) {
  const CallLock lock(calls_);
  if (window_ == nullptr) {
    alone_p_ *= factor;
  } else {
    opened("win_put").multiplyP(factor);
  }
}

std::map<int, TensorWindow::SlotReport> TensorWindow::states(
    const std::vector<int>& writers) const {
  std::map<int, SlotReport> states;
  for (const int writer : writers) {
    const Slot slot = opened("get_win_version").slotOf(writer);
    const std::chrono::duration<double> age = Slot::Clock::now() - slot.lastChange();
    states[writer] = {
        slot.version(), slot.changesInAll(),
        slot.changesInAll() == 0 ? std::numeric_limits<double>::infinity() : age.count(), slot.p(),
        resources_.liveness->hasEnded(writer)};
  }
  return states;
}

std::map<int, TensorWindow::Sent> TensorWindow::sent() const {
  return counters_->all();
}

void TensorWindow::take(const std::vector<Edge>& edges) {
  const CallLock lock(calls_);
  checkOpen("win_mutex");
  for (const Edge& edge : edges) {
    TORCH_CHECK(!mutexes_.isMine(edge), label_.who("win_mutex"),
                "this thread holds the mutex already");
  }
  mutexes_.take("win_mutex", edges);
}

void TensorWindow::letGo(const std::vector<Edge>& edges) {
  if (!resources_.engine->isForked()) {  // a forked child holds none of them
    mutexes_.letGo(edges);
  }
}

SlotMutex* TensorWindow::mutexOf(const Edge& edge) const {
  const auto& [owner, writer] = edge;
  if (owner == window_->rank()) {
    return own_mutexes_[static_cast<size_t>(writer)].get();
  }
  return peerWindow(owner).isThere() ? &peerWindow(owner).mutex() : nullptr;
}

}  // namespace bluefog
