#include "process_group/WindowBluefog.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "core/Deadline.hpp"
#include "process_group/Flat.hpp"
#include "window/Combine.hpp"
#include "window/FarReach.hpp"
#include "window/NearReach.hpp"

namespace bluefog {
namespace {

// Operations under way that may be remembered though they have ended.
constexpr size_t kMostUnderWay = 64;
// How long a wait for other threads sleeps before it looks after its caller's business.
constexpr std::chrono::milliseconds kSlice{20};

Engine::Who whoWaits(bool is_caller) {
  return is_caller ? Engine::Who::kCaller : Engine::Who::kEngine;
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

WindowBluefog::WindowBluefog(Means means, std::string name, at::Tensor tensor, bool is_fresh,
                             bool drops)
    : means_(std::move(means)),
      label_{means_.engine->members(), std::move(name)},
      tensor_(std::move(tensor)),
      drops_(drops),
      sizes_(tensor_.sizes().vec()),
      mutexes_({label_, means_.timeout, [this](const Edge& edge) { return mutexOf(edge); },
                [this](const char* op) {
                  checkOpen(op);
                  interrupt();
                }}),
      ledger_(std::make_shared<Ledger>()) {
  const std::string who = label_.who("win_create");
  Validate(label_.members, "win_create").tensor(tensor_, "the tensor");
  TORCH_CHECK_VALUE(isCombinable(dtypeOf(tensor_)), who, "elements of type ", typeName(tensor_),
                    " cannot be in a window; use a floating, complex or integer type");
  TORCH_CHECK_VALUE(Flat::isPlain(tensor_), who,
                    "the tensor is not contiguous; make the window of tensor.contiguous()");
  const size_t bytes = tensor_.nbytes();
  const int size = label_.members.size;
  if (size == 1) {
    return;
  }
  if (means_.heap && bytes > 0) {
    shared_.emplace(means_.heap, tensor_, is_fresh, who);
    place_.tensor = shared_->place();
  }
  storage_ = tensor_.storage();
  storage_.unsafeGetStorageImpl()->set_resizable(false);
  const size_t room = WindowLayout(size, bytes).bytes();
  room_ = means_.grounds->take(room);
  TORCH_CHECK(room_ != nullptr, who, "no room for slots of ", room,
              " bytes beside the other windows");
  place_.room = room_->at();
}

WindowBluefog::~WindowBluefog() {
  if (means_.reception && window_ && !means_.engine->isForked()) {
    means_.reception->remove(number_);
  }
}

void WindowBluefog::open(uint64_t number, const std::vector<WindowPlace>& places, bool zero_init,
                         const std::vector<int>& sources) {
  if (room_ == nullptr) {
    return;
  }
  const Membership& members = label_.members;
  const WindowShape shape{dtypeOf(tensor_), static_cast<size_t>(tensor_.numel())};
  auto* data = static_cast<std::byte*>(tensor_.mutable_data_ptr());
  window_ =
      std::make_shared<Window>(members.rank, members.size, number, shape, data, std::move(room_));
  for (int rank = 0; rank < members.size; ++rank) {
    own_mutexes_.push_back(
        std::make_unique<NearMutex>(window_->mutexWith(rank), members.rank, *means_.lives));
    reaches_.push_back(
        rank == members.rank ? nullptr : reachOf(rank, number, places[static_cast<size_t>(rank)]));
  }
  if (!zero_init) {
    for (const int source : sources) {
      window_->begin(source);
    }
  }
  if (means_.reception) {
    number_ = number;
    means_.reception->add(number, *window_);
  }
}

std::unique_ptr<Reach> WindowBluefog::reachOf(int rank, uint64_t number, const WindowPlace& place) {
  if (means_.engine->hosts().isHere(rank)) {
    means_.lives->watch(rank, means_.grounds->hasLeft(rank));
    return std::make_unique<NearReach>(window_, rank, place, *means_.grounds, *means_.lives);
  }
  const Cause freed = drops_ ? Cause::kPeerFailed : Cause::kMismatch;  // since another has died
  const auto asking =
      std::make_shared<Asking>(means_.engine, rank, number, label_.name, means_.timeout, freed,
                               [ledger = ledger_, rank] { ledger->noteDropped(rank); });
  return std::make_unique<FarReach>(window_, rank, asking);
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
  Validate(label_.members, op).tensor(tensor, "the tensor");
  TORCH_CHECK_VALUE(tensor.sizes() == sizes_ && tensor.scalar_type() == tensor_.scalar_type(),
                    label_.who(op), "the tensor is ", typeName(tensor), tensor.sizes(),
                    ", the window's ", typeName(tensor_), at::IntArrayRef(sizes_));
}

template <class What>
WindowBluefog::WorkPtr WindowBluefog::with(const char* op, const Ranks& ranks, bool async_op,
                                           What what) {
  std::vector<int> dead;
  std::vector<Rest> rests;
  std::exception_ptr failure;
  const auto begin = [&](const WeightedRank& peer) {
    const bool is_there = reach(peer.rank).isThere();
    if (means_.lives->hasEnded(peer.rank) || (drops_ && !is_there)) {  // since another has died
      return false;
    }
    try {
      if (!is_there) {
        throw noSuchWindow(label_.who(op), label_.members.global(peer.rank));
      }
      if (Rest rest = what(peer)) {
        rests.push_back(std::move(rest));
      }
    } catch (const Error& error) {  // the others get theirs all the same
      if (drops_ && error.cause() == Cause::kPeerFailed) {
        return false;
      }
      if (!failure) {
        failure = std::current_exception();
      }
    }
    return true;
  };
  for (const WeightedRank& peer : ranks) {
    if (!begin(peer)) {
      dead.push_back(label_.members.global(peer.rank));
      ledger_->noteDropped(peer.rank);
    }
  }
  if (!async_op && dead.empty() && rests.empty() && !failure) {
    return nullptr;
  }
  auto work = std::make_shared<WindowWork>(means_.engine, label_.who(op), std::move(dead),
                                           std::move(rests), drops_);
  if (!async_op) {
    work->wait();
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
  return async_op ? work : nullptr;
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
    reopen();
    throw;
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
  const bool waits = !opts.async_op || opts.require_mutex;
  const auto is_far = [this](const WeightedRank& to) {
    return !means_.engine->hosts().isHere(to.rank);
  };
  const bool copies = !waits && std::any_of(destinations.begin(), destinations.end(), is_far);
  const at::NoGradGuard no_grad;
  const auto flat = std::make_shared<Flat>(copies ? Flat::copy(tensor) : Flat::input(tensor));
  const double p = this->p();
  return with(op, destinations, opts.async_op, [&](const WeightedRank& to) {
    const Taken taken(mutexes_, op, {{to.rank, label_.members.rank}}, opts.require_mutex);
    const WindowShape& shape = window_->shape();
    const Contribution what{shape.dtype, shape.count, flat->readable(), to.weight,
                            opts.with_p ? std::optional(to.weight * p) : std::nullopt};
    ledger_->notePut(to.rank, tensor_.nbytes());
    return begun(reach(to.rank).put(what, opts.into, {whoWaits(waits), flat}), opts.require_mutex);
  });
}

WindowBluefog::WorkPtr WindowBluefog::get(const Ranks& sources, bool require_mutex, bool with_p,
                                          bool async_op) {
  const Call call(calls_);
  checkOpen("win_get");
  return with("win_get", sources, async_op, [&](const WeightedRank& from) {
    const Taken taken(mutexes_, "win_get", {{from.rank, label_.members.rank}}, require_mutex);
    const bool waits = !async_op || require_mutex;
    return begun(reach(from.rank).get(from.weight, with_p, whoWaits(waits)), require_mutex);
  });
}

at::Tensor WindowBluefog::update(double self_weight, const Ranks& sources, bool reset, bool clone,
                                 bool require_mutex, bool with_p) {
  const Call call(calls_);
  const at::NoGradGuard no_grad;
  const at::Tensor out = clone ? at::empty_like(tensor_) : tensor_;
  if (window_ == nullptr) {
    alone_p_ *= with_p ? self_weight : 1;
    combine(dtypeOf(tensor_), out.mutable_data_ptr(), {tensor_.const_data_ptr()}, {self_weight},
            static_cast<size_t>(tensor_.numel()));
    noteWritten(out);
    return out;
  }
  Window& window = opened("win_update");
  const int self = label_.members.rank;
  std::vector<Edge> edges;
  for (const WeightedRank& source : sources) {
    edges.emplace_back(self, source.rank);
  }
  const Taken taken(mutexes_, "win_update", std::move(edges), require_mutex);
  window.update({self_weight, sources, reset, with_p}, out.mutable_data_ptr());
  noteWritten(out);
  return out;
}

at::Tensor WindowBluefog::read(int writer, bool require_mutex) {
  const Call call(calls_);
  Window& window = opened("win_read_neighbor");
  const at::Tensor out = at::empty_like(tensor_);
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
