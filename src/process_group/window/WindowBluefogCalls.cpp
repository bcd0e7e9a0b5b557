// The calls of a window: with each of some ranks, or of its own memory.
#include <ATen/ATen.h>

#include <algorithm>
#include <future>
#include <limits>

#include "core/Deadline.hpp"
#include "core/Interruption.hpp"
#include "process_group/host/Flat.hpp"
#include "process_group/window/WindowBluefog.hpp"
#include "process_group/window/WindowValues.hpp"
#include "window/Combine.hpp"

namespace bluefog {
namespace {

// Operations under way that may be remembered though they have ended.
constexpr size_t kMostUnderWay = 64;

// While a rank's sources send nothing, each of its steps takes at least this long. It is longer
// than a rank is usually kept from a core that it shares, and shorter than most steps of a
// training.
constexpr std::chrono::milliseconds kPace(5);
// A wait for any of several slots looks at each of them so often.
constexpr std::chrono::microseconds kLook(100);

// As torch does it for what is written in place.
void noteWritten(const at::Tensor& tensor) {
  if (!tensor.is_inference()) {
    tensor.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace

WindowBegun WindowBluefog::begin(const char* op, const Ranks& ranks, const What& what) {
  WindowBegun begun;
  const auto fail = [&](const std::exception_ptr& failure) {
    if (!begun.failure) {
      begun.failure = failure;
    }
  };
  const auto begin_one = [&](const WeightedRank& peer) {
    const bool is_there = reach(peer.rank).isThere();
    if (means_.lives->hasEnded(peer.rank) || (drops_ && !is_there)) {  // since another has died
      return false;
    }
    try {
      if (!is_there) {
        throw noSuchWindow(label_.who(op), label_.members.global(peer.rank));
      }
      if (Rest rest = sayingWhoseCall(label_, op, [&] { return what(peer); })) {
        begun.rests.push_back(std::move(rest));
      }
    } catch (const Error& error) {  // the others get theirs all the same
      if (drops_ && error.cause() == Cause::kPeerFailed) {
        return false;
      }
      fail(std::current_exception());
    } catch (const Interruption&) {
      throw;
    } catch (const std::exception&) {  // of a device
      fail(std::current_exception());
    }
    return true;
  };
  for (const WeightedRank& peer : ranks) {
    if (!begin_one(peer)) {
      begun.dead.push_back(label_.members.global(peer.rank));
      ledger_->noteDropped(peer.rank);
    }
  }
  return begun;
}

WindowWork::Means WindowBluefog::worksMeans(const char* op) const {
  return {means_.engine, means_.interrupt, label_.who(op), drops_};
}

// What is under way when this thread lets a mutex go would not be guarded by it. (A call that is
// waited for has ended then.)
WindowBluefog::Way WindowBluefog::wayOf(const Ranks& others, bool async_op,
                                        bool require_mutex) const {
  const auto is_held = [this, self = label_.members.rank](const WeightedRank& other) {
    return mutexes_.isMine({other.rank, self}) || mutexes_.isMine({self, other.rank});
  };
  return {async_op,
          require_mutex || (async_op && std::any_of(others.begin(), others.end(), is_held))};
}

WindowBluefog::WorkPtr WindowBluefog::with(const char* op, const Ranks& ranks, const Way& way,
                                           What what) {
  const c10::OptionalDeviceGuard guard = onDevice();
  if (way.goesOn() && stream_) {
    return withLater(op, ranks, std::move(what));
  }
  if (stream_) {
    stream_->catchUp(op);
  }
  WindowBegun begun = begin(op, ranks, what);
  if (!way.is_async && begun.dead.empty() && begun.rests.empty() && !begun.failure) {
    return nullptr;
  }
  if (way.is_async && begun.failure) {
    std::rethrow_exception(begun.failure);
  }
  auto work = std::make_shared<WindowWork>(worksMeans(op), std::move(begun));
  if (way.is_async) {
    return work;
  }
  work->wait();
  return nullptr;
}

WindowBluefog::WorkPtr WindowBluefog::withLater(const char* op, const Ranks& ranks, What what) {
  const auto promise = std::make_shared<std::promise<WindowBegun>>();
  auto work = std::make_shared<WindowWork>(worksMeans(op), promise->get_future());
  stream_->begin(
      op,
      [this, op, ranks, promise, what = std::move(what)] {
        promise->set_value(begin(op, ranks, what));
      },
      [promise](const std::exception_ptr& error) { promise->set_value({.failure = error}); });
  return work;
}

// What flush() waits for, also where Ctrl-C ends a wait.
Rest WindowBluefog::begun(Rest rest, const Way& way) {
  if (rest) {
    const std::lock_guard lock(mutex_);
    if (under_way_.size() >= most_under_way_) {
      std::erase_if(under_way_, [](const Rest& before) { return before->hasEnded(); });
      most_under_way_ = kMostUnderWay + 2 * under_way_.size();
    }
    under_way_.push_back(rest);
  }
  if (rest && way.is_guarded) {
    means_.engine->wait(*rest, Deadline::never());
  }
  return rest;
}

void WindowBluefog::flush(const char* op) {
  checkProcess(op);
  checkGroup(op);
  if (stream_) {
    stream_->drain(op);
  }
  std::vector<Rest> rests;
  {
    const std::lock_guard lock(mutex_);
    rests = under_way_;
  }
  for (const Rest& rest : rests) {
    means_.engine->wait(*rest, Deadline::never());
  }
}

WindowBluefog::WorkPtr WindowBluefog::put(const at::Tensor& tensor, const Ranks& destinations,
                                          const PutOptions& opts) {
  const Call call(calls_);
  const char* op = opts.into == Reach::Into::kAdd ? "win_accumulate" : "win_put";
  check(op, tensor);
  checkOpen(op);
  const Way way = wayOf(destinations, opts.async_op, opts.require_mutex);
  const auto is_far = [this](const WeightedRank& to) {
    return !means_.engine->hosts().isHere(to.rank);
  };
  const bool copies =
      way.goesOn() && (stream_ || std::any_of(destinations.begin(), destinations.end(), is_far));
  const at::NoGradGuard no_grad;
  const at::Tensor sent = copies ? Flat::copy(tensor).tensor() : tensor;
  const auto values = std::make_shared<WindowValues>(Flat::input(sent), space_);
  const auto what = [this, op, opts, way, values, p = this->p()](const WeightedRank& to) {
    const Taken taken(mutexes_, op, {{to.rank, label_.members.rank}}, opts.require_mutex);
    const WindowShape& shape = window_->shape();
    const auto [data, owner] = values->viewFor(reach(to.rank));
    const Contribution contribution{shape.dtype, shape.count, data, to.weight,
                                    opts.with_p ? std::optional(to.weight * p) : std::nullopt};
    ledger_->notePut(to.rank, tensor_.nbytes());
    return begun(reach(to.rank).put(contribution, opts.into, {way.whoWaits(), owner}), way);
  };
  return with(op, destinations, way, what);
}

WindowBluefog::WorkPtr WindowBluefog::get(const Ranks& sources, bool require_mutex, bool with_p,
                                          bool async_op) {
  const Call call(calls_);
  checkOpen("win_get");
  const Way way = wayOf(sources, async_op, require_mutex);
  const auto what = [=, this](const WeightedRank& from) {
    const Taken taken(mutexes_, "win_get", {{from.rank, label_.members.rank}}, require_mutex);
    return begun(reach(from.rank).get(from.weight, with_p, way.whoWaits()), way);
  };
  return with("win_get", sources, way, what);
}

// Where there is no other rank.
void WindowBluefog::scaleAlone(const at::Tensor& out, double weight) const {
  if (!means_.device) {
    combine(dtypeOf(tensor_), out.mutable_data_ptr(), {tensor_.const_data_ptr()}, {weight},
            static_cast<size_t>(tensor_.numel()));
  } else if (weight == 1) {
    out.copy_(tensor_);
  } else {
    const bool is_exact = isFloating(partOf(dtypeOf(tensor_)));
    out.copy_((is_exact ? tensor_ : tensor_.to(at::kDouble)).mul(weight));
  }
}

// Those of sources that live, and that this thread does not exclude by a mutex.
std::vector<Slot> WindowBluefog::slotsOfLiving(const std::vector<int>& sources) const {
  std::vector<Slot> slots;
  for (const int source : sources) {
    if (!means_.lives->hasEnded(source) && !mutexes_.isMine({label_.members.rank, source})) {
      slots.push_back(window_->slotOf(source));
    }
  }
  return slots;
}

// In a loop of microseconds a step, ranks that share cores would find nothing new for many steps,
// or what others sent many steps ago.
void WindowBluefog::keepPace(const std::vector<Slot>& slots, News news) {
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

void WindowBluefog::awaitNews(const std::vector<int>& sources) {
  const Call call(calls_);
  if (window_ != nullptr) {
    checkOpen("win_update");
    keepPace(slotsOfLiving(sources), News::kOfAny);
  }
}

at::Tensor WindowBluefog::update(double self_weight, const Ranks& sources, bool reset, bool clone,
                                 bool require_mutex, bool with_p) {
  const Call call(calls_);
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
  const Taken taken(mutexes_, "win_update", std::move(edges), require_mutex);
  sayingWhoseCall(label_, "win_update", [&] {
    window.update({self_weight, sources, reset, with_p}, out.mutable_data_ptr());
  });
  noteWritten(out);
  return out;
}

at::Tensor WindowBluefog::read(int writer, bool require_mutex) {
  const Call call(calls_);
  Window& window = opened("win_read_neighbor");
  const c10::OptionalDeviceGuard guard = onDevice();
  const at::Tensor out = at::empty_like(tensor_);
  if (stream_) {
    stream_->catchUp("win_read_neighbor");
  }
  const Taken taken(mutexes_, "win_read_neighbor", {{label_.members.rank, writer}}, require_mutex);
  sayingWhoseCall(label_, "win_read_neighbor",
                  [&] { window.read(writer, out.mutable_data_ptr()); });
  return out;
}

void WindowBluefog::multiplyP(double factor) {
  const Call call(calls_);
  if (window_ == nullptr) {
    alone_p_ *= factor;
  } else {
    opened("win_put").multiplyP(factor);
  }
}

std::map<int, WindowBluefog::State> WindowBluefog::states(const std::vector<int>& writers) const {
  std::map<int, State> states;
  for (const int writer : writers) {
    const Slot slot = opened("get_win_version").slotOf(writer);
    const std::chrono::duration<double> age = Slot::Clock::now() - slot.lastChange();
    states[writer] = {
        slot.version(), slot.changesInAll(),
        slot.changesInAll() == 0 ? std::numeric_limits<double>::infinity() : age.count(), slot.p(),
        means_.lives->hasEnded(writer)};
  }
  return states;
}

std::map<int, WindowBluefog::Sent> WindowBluefog::sent() const {
  return ledger_->all();
}

void WindowBluefog::take(const std::vector<Edge>& edges) {
  const Call call(calls_);
  checkOpen("win_mutex");
  for (const Edge& edge : edges) {
    TORCH_CHECK(!mutexes_.isMine(edge), label_.who("win_mutex"),
                "this thread holds the mutex already");
  }
  mutexes_.take("win_mutex", edges);
}

void WindowBluefog::letGo(const std::vector<Edge>& edges) {
  if (!means_.engine->isForked()) {  // a child has none of them
    mutexes_.letGo(edges);
  }
}

SlotMutex* WindowBluefog::mutexOf(const Edge& edge) const {
  const auto& [owner, writer] = edge;
  if (owner == window_->rank()) {
    return own_mutexes_[static_cast<size_t>(writer)].get();
  }
  return reach(owner).isThere() ? &reach(owner).mutex() : nullptr;
}

}  // namespace bluefog
