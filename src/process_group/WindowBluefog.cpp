#include "process_group/WindowBluefog.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <future>
#include <iterator>
#include <limits>

#include "core/Deadline.hpp"
#include "process_group/Flat.hpp"
#include "process_group/WindowSlice.hpp"
#include "process_group/WindowValues.hpp"
#include "window/Combine.hpp"
#include "window/DeviceSpace.hpp"
#include "window/FarReach.hpp"
#include "window/NearReach.hpp"

namespace bluefog {
namespace {

// Operations under way that may be remembered though they have ended.
constexpr size_t kMostUnderWay = 64;
Engine::Who whoWaits(bool is_caller) {
  return is_caller ? Engine::Who::kCaller : Engine::Who::kEngine;
}

bool has(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

// As torch does it for what is written in place.
void noteWritten(const at::Tensor& tensor) {
  if (!tensor.is_inference()) {
    tensor.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace

// May outlive the window, by what is under way.
class WindowBluefog::Ledger {
 public:
  void notePut(int rank, size_t bytes) {
    const std::lock_guard lock(mutex_);
    Sent& sent = of_[rank];
    ++sent.puts;
    sent.bytes += bytes;
  }
  void noteDropped(int rank) {
    const std::lock_guard lock(mutex_);
    ++of_[rank].dropped;
  }
  std::map<int, Sent> all() const {
    const std::lock_guard lock(mutex_);
    return of_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<int, Sent> of_;
};

WindowBluefog::WindowBluefog(Means means, std::string name, Plan plan)
    : means_(std::move(means)),
      label_{means_.engine->members(), std::move(name)},
      tensor_(std::move(plan.tensor)),
      drops_(plan.drops),
      sources_(std::move(plan.sources)),
      sizes_(tensor_.sizes().vec()),
      mutexes_({label_, means_.timeout, [this](const Edge& edge) { return mutexOf(edge); },
                [this](const char* op) {
                  checkOpen(op);
                  interrupt();
                }}),
      ledger_(std::make_shared<Ledger>()) {
  const std::string who = label_.who("win_create");
  validate("win_create").tensor(tensor_, "the tensor");
  TORCH_CHECK_VALUE(isCombinable(dtypeOf(tensor_)), who, "elements of type ", typeName(tensor_),
                    " cannot be in a window; use a floating, complex or integer type");
  TORCH_CHECK_VALUE(Flat::isPlain(tensor_), who,
                    "the tensor is not contiguous; make the window of tensor.contiguous()");
  if (means_.device) {
    const auto memory = std::shared_ptr<Device>(means_.device, &means_.device->device());
    stream_ = std::make_unique<WindowStream>(WindowStream::Means{
        label_, tensor_.device(), memory, means_.timeout, [this](const char* op) {
          checkGroup(op);
          interrupt();
        }});
  }
  if (label_.members.size > 1) {
    settle(plan.is_fresh, who);
  }
}

// Where others reach it.
void WindowBluefog::settle(bool is_fresh, const std::string& who) {
  const c10::OptionalDeviceGuard guard = onDevice();
  const size_t bytes = tensor_.nbytes();
  const bool is_reached = means_.heap && means_.engine->hosts().here().size() > 1 && bytes > 0;
  if (stream_) {
    stream_->catchUp("win_create");
  }
  if (is_reached) {
    shared_.emplace(means_.heap, tensor_, is_fresh, who);
  }
  storage_ = tensor_.storage();
  storage_.unsafeGetStorageImpl()->set_resizable(false);
  if (!means_.device) {
    space_ = HostSpace::get();
    place_.tensor = shared_ ? std::optional(shared_->place()) : std::nullopt;
  } else {
    space_ = std::make_shared<DeviceSpace>(means_.device);
    if (is_reached) {
      on_device_ = std::make_unique<DeviceGrounds>(
          means_.device, static_cast<const std::byte*>(tensor_.const_data_ptr()), bytes,
          here(sources_));
    }
  }
  const size_t room = WindowLayout(label_.members.size, bytes).bytes();
  room_ = means_.grounds->take(room);
  TORCH_CHECK(room_ != nullptr, who, "no room for slots of ", room,
              " bytes beside the other windows");
  place_.room = room_->at();
}

Validate WindowBluefog::validate(const char* op) const {
  return {label_.members, op, means_.device ? tensor_.device().type() : c10::kCPU};
}

std::vector<int> WindowBluefog::here(const std::vector<int>& ranks) const {
  std::vector<int> here;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(here),
               [this](int rank) { return means_.engine->hosts().isHere(rank); });
  return here;
}

// What others may still have open stays until the process ends: to free it would be undefined.
WindowBluefog::~WindowBluefog() {
  stopHearing();
  const c10::OptionalDeviceGuard guard = onDevice();
  stream_.reset();
  if (on_device_ && !is_freed_ && !(direct_.writers.empty() && direct_.owners.empty())) {
    on_device_->forsakeSlots();
    (void)std::make_unique<c10::Storage>(storage_).release();
  }
  reaches_.clear();
  on_device_.reset();
}

c10::OptionalDeviceGuard WindowBluefog::onDevice() const {
  const bool is_there = means_.device && !means_.engine->isForked();
  return is_there ? c10::OptionalDeviceGuard(tensor_.device()) : c10::OptionalDeviceGuard();
}

std::optional<DeviceGrounds::Ticket> WindowBluefog::ticket() const {
  return on_device_ ? std::optional(on_device_->ticket()) : std::nullopt;
}

WindowBluefog::Reached WindowBluefog::reachOut(const std::vector<DeviceGrounds::Ticket>& tickets,
                                               const std::vector<std::vector<int>>& sources) {
  const c10::OptionalDeviceGuard guard = onDevice();
  all_sources_ = sources;
  const int self = label_.members.rank;
  Reached reached;
  for (const int rank : means_.engine->hosts().here()) {
    const auto at = static_cast<size_t>(rank);
    if (on_device_ && has(sources[at], self) && on_device_->openSlots(rank, tickets[at])) {
      reached.slots.push_back(rank);
    }
    if (on_device_ && has(sources_, rank) && on_device_->openTensor(rank, tickets[at])) {
      reached.tensors.push_back(rank);
    }
  }
  reached.reason = on_device_ ? on_device_->reason() : "";
  return reached;
}

void WindowBluefog::open(uint64_t number, const std::vector<WindowPlace>& places, bool zero_init,
                         Direct direct) {
  if (room_ == nullptr) {
    return;
  }
  const c10::OptionalDeviceGuard guard = onDevice();
  const Membership& members = label_.members;
  const WindowShape shape{dtypeOf(tensor_), static_cast<size_t>(tensor_.numel())};
  auto* data = static_cast<std::byte*>(tensor_.mutable_data_ptr());
  window_ = std::make_shared<Window>(members.rank, members.size, number, shape, data,
                                     std::move(room_), spaceFor(direct.writers));
  direct_ = std::move(direct);
  if (on_device_ && direct_.writers.empty()) {
    on_device_->giveSlotsBack();
  }
  for (int rank = 0; rank < members.size; ++rank) {
    own_mutexes_.push_back(
        std::make_unique<NearMutex>(window_->mutexWith(rank), members.rank, *means_.lives));
    reaches_.push_back(rank == members.rank ? nullptr
                                            : reachOf(rank, places[static_cast<size_t>(rank)]));
  }
  if (!zero_init) {
    for (const int source : sources_) {
      window_->begin(source);
    }
  }
  if (means_.reception) {
    means_.reception->add(number, *window_);
  }
}

WindowSpace WindowBluefog::spaceFor(const std::vector<int>& writers) const {
  if (writers.empty()) {
    return {space_, {}};
  }
  WindowSpace where{space_, std::vector<std::byte*>(static_cast<size_t>(label_.members.size))};
  for (const int writer : writers) {
    where.buffers[static_cast<size_t>(writer)] = on_device_->buffers(writer);
  }
  return where;
}

std::unique_ptr<Reach> WindowBluefog::messagesTo(int rank) {
  const Cause freed = drops_ ? Cause::kPeerFailed : Cause::kMismatch;  // since another has died
  const auto asking =
      std::make_shared<Asking>(means_.engine, rank, window_->number(), label_.name, means_.timeout,
                               freed, [ledger = ledger_, rank] { ledger->noteDropped(rank); });
  return std::make_unique<FarReach>(window_, rank, asking);
}

std::unique_ptr<Reach> WindowBluefog::reachOf(int rank, const WindowPlace& place) {
  if (!means_.engine->hosts().isHere(rank)) {
    return messagesTo(rank);
  }
  means_.lives->watch(rank, means_.grounds->hasLeft(rank));
  if (!means_.device) {
    return std::make_unique<NearReach>(window_, rank, place, *means_.grounds, *means_.lives);
  }
  const WindowPart part(means_.grounds->room(rank) + place.room, window_->layout());
  auto reach = std::make_unique<NearReach>(
      window_, rank, part,
      NearReach::OnDevice{slotAt(rank, part), tensorAt(rank), messagesTo(rank)}, *means_.lives);
  opened_.emplace(rank, std::pair(reach.get(), part));
  return reach;
}

// This rank's there, if it lies on the device.
std::optional<Slot> WindowBluefog::slotAt(int rank, const WindowPart& part) const {
  if (!has(direct_.owners, rank)) {
    return std::nullopt;
  }
  const int self = label_.members.rank;
  const std::vector<int> writers = here(all_sources_[static_cast<size_t>(rank)]);
  const auto at = std::find(writers.begin(), writers.end(), self) - writers.begin();
  return part.slot(self, on_device_->buffersAt(rank, static_cast<size_t>(at)), *space_);
}

const std::byte* WindowBluefog::tensorAt(int rank) const {
  return has(direct_.writers, rank) ? on_device_->tensorAt(rank) : nullptr;
}

void WindowBluefog::checkProcess(const char* op) const {
  if (means_.engine->isForked()) {
    throwForked(label_.who(op));
  }
}

void WindowBluefog::checkGroup(const char* op) const {
  TORCH_CHECK(!means_.engine->hasStopped(), label_.who(op), "the group has ended");
}

void WindowBluefog::checkOpen(const char* op) const {
  checkProcess(op);
  checkGroup(op);
  TORCH_CHECK_VALUE(!is_closed_, label_.who(op), "the window was freed");
  if (window_ == nullptr) {
    return;
  }
  TORCH_CHECK_VALUE(tensor_.storage().is_alias_of(storage_), label_.who(op),
                    "the window's tensor has got other memory (tensor.data = ..., set_()?); write "
                    "into it instead: tensor.copy_(...)");
  TORCH_CHECK_VALUE(tensor_.sizes() == sizes_ && tensor_.is_contiguous() &&
                        tensor_.const_data_ptr() == window_->tensor(),
                    label_.who(op),
                    "the window's tensor has got another shape or place in its memory "
                    "(resize_(), t_()?): ",
                    tensor_.sizes(), " instead of ", at::IntArrayRef(sizes_));
}

Window& WindowBluefog::opened(const char* op) const {
  checkOpen(op);
  TORCH_CHECK(window_ != nullptr, label_.who(op), "there is no other rank in the group");
  return *window_;
}

void WindowBluefog::check(const char* op, const at::Tensor& tensor) const {
  validate(op).tensor(tensor, "the tensor");
  TORCH_CHECK_VALUE(tensor.device() == tensor_.device(), label_.who(op), "the tensor is on ",
                    tensor.device(), ", the window's on ", tensor_.device());
  TORCH_CHECK_VALUE(tensor.sizes() == sizes_ && tensor.scalar_type() == tensor_.scalar_type(),
                    label_.who(op), "the tensor is ", typeName(tensor), tensor.sizes(),
                    ", the window's ", typeName(tensor_), at::IntArrayRef(sizes_));
}

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
      if (Rest rest = what(peer)) {
        begun.rests.push_back(std::move(rest));
      }
    } catch (const Error& error) {  // the others get theirs all the same
      if (drops_ && error.cause() == Cause::kPeerFailed) {
        return false;
      }
      fail(std::current_exception());
    } catch (const std::runtime_error& error) {  // of a device
      fail(std::make_exception_ptr(std::runtime_error(label_.who(op) + error.what())));
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

WindowBluefog::Pace WindowBluefog::paceOf(bool async_op, bool require_mutex) const {
  if (!async_op) {
    return Pace::kWaits;
  }
  return stream_ && !require_mutex ? Pace::kBegins : Pace::kReturns;
}

WindowBluefog::WorkPtr WindowBluefog::with(const char* op, const Ranks& ranks, Pace pace,
                                           What what) {
  const c10::OptionalDeviceGuard guard = onDevice();
  if (pace == Pace::kBegins) {
    return withLater(op, ranks, std::move(what));
  }
  if (stream_) {
    stream_->catchUp(op);
  }
  WindowBegun begun = begin(op, ranks, what);
  const bool is_async = pace == Pace::kReturns;
  if (!is_async && begun.dead.empty() && begun.rests.empty() && !begun.failure) {
    return nullptr;
  }
  if (is_async && begun.failure) {
    std::rethrow_exception(begun.failure);
  }
  auto work = std::make_shared<WindowWork>(worksMeans(op), std::move(begun));
  if (!is_async) {
    work->wait();
  }
  return is_async ? work : nullptr;
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

// What flush() waits for, also where Ctrl-C ends a wait; and what must have ended before a mutex is
// let go.
Rest WindowBluefog::begun(Rest rest, bool is_waited_for) {
  if (rest) {
    const std::lock_guard lock(mutex_);
    if (under_way_.size() >= most_under_way_) {
      std::erase_if(under_way_, [](const Rest& before) { return before->hasEnded(); });
      most_under_way_ = kMostUnderWay + 2 * under_way_.size();
    }
    under_way_.push_back(rest);
  }
  if (rest && is_waited_for) {
    means_.engine->wait(*rest, Deadline::never());
  }
  return rest;
}

void WindowBluefog::close(const char* op) {
  checkProcess(op);
  is_closed_ = true;
  const Deadline deadline = Deadline::in(means_.timeout);
  try {
    while (!calls_.try_lock_for(kSlice)) {
      const int rank = label_.members.global(label_.members.rank);
      if (deadline.passed()) {
        throw Error(Cause::kTimeout, {rank},
                    label_.who(op) + "timeout after " + inSeconds(means_.timeout) +
                        "; a thread of this rank is in a call of the window");
      }
      interrupt();
    }
    calls_.unlock();
    flush(op);
  } catch (...) {
    is_closed_ = false;
    throw;
  }
  const c10::OptionalDeviceGuard guard = onDevice();
  if (on_device_) {
    on_device_->closeAll();
  }
}

void WindowBluefog::reopen() {
  const c10::OptionalDeviceGuard guard = onDevice();
  if (on_device_) {
    on_device_->openAgain();
    for (const auto& [rank, opened] : opened_) {
      const auto& [reach, part] = opened;
      reach->reopened(slotAt(rank, part), tensorAt(rank));
    }
  }
  is_closed_ = false;
}

void WindowBluefog::abandon() {
  if (window_) {
    window_->abandon();
    stopHearing();
  }
}

void WindowBluefog::stopHearing() {
  if (means_.reception && window_ && !means_.engine->isForked()) {
    means_.reception->remove(window_->number());
  }
}

void WindowBluefog::interrupt() const {
  if (means_.interrupt) {
    means_.interrupt();
  }
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
  const Pace pace = paceOf(opts.async_op, opts.require_mutex);
  const bool waits = !opts.async_op || opts.require_mutex;
  const auto is_far = [this](const WeightedRank& to) {
    return !means_.engine->hosts().isHere(to.rank);
  };
  const bool copies = !waits && (pace == Pace::kBegins ||
                                 std::any_of(destinations.begin(), destinations.end(), is_far));
  const at::NoGradGuard no_grad;
  const at::Tensor sent = copies ? Flat::copy(tensor).tensor() : tensor;
  const auto values = std::make_shared<WindowValues>(Flat::input(sent), space_);
  const auto what = [this, op, opts, waits, values, p = this->p()](const WeightedRank& to) {
    const Taken taken(mutexes_, op, {{to.rank, label_.members.rank}}, opts.require_mutex);
    const WindowShape& shape = window_->shape();
    const auto [data, owner] = values->viewFor(reach(to.rank));
    const Contribution contribution{shape.dtype, shape.count, data, to.weight,
                                    opts.with_p ? std::optional(to.weight * p) : std::nullopt};
    ledger_->notePut(to.rank, tensor_.nbytes());
    return begun(reach(to.rank).put(contribution, opts.into, {whoWaits(waits), owner}),
                 opts.require_mutex);
  };
  return with(op, destinations, pace, what);
}

WindowBluefog::WorkPtr WindowBluefog::get(const Ranks& sources, bool require_mutex, bool with_p,
                                          bool async_op) {
  const Call call(calls_);
  checkOpen("win_get");
  const auto what = [=, this](const WeightedRank& from) {
    const Taken taken(mutexes_, "win_get", {{from.rank, label_.members.rank}}, require_mutex);
    const bool waits = !async_op || require_mutex;
    return begun(reach(from.rank).get(from.weight, with_p, whoWaits(waits)), require_mutex);
  };
  return with("win_get", sources, paceOf(async_op, require_mutex), what);
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
  for (const WeightedRank& source : sources) {
    edges.emplace_back(self, source.rank);
  }
  if (stream_) {
    stream_->catchUp("win_update");
  }
  const Taken taken(mutexes_, "win_update", std::move(edges), require_mutex);
  window.update({self_weight, sources, reset, with_p}, out.mutable_data_ptr());
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
  window.read(writer, out.mutable_data_ptr());
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
