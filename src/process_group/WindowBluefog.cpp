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
// How long a wait for a mutex sleeps before it looks after its caller's business.
constexpr std::chrono::milliseconds kSlice{20};

Engine::Who whoWaits(bool is_caller) {
  return is_caller ? Engine::Who::kCaller : Engine::Who::kEngine;
}

}  // namespace

// Of a storage in the heap, which keeps that; and its memory before, to which something may still
// point: an array, an operation under way.
struct WindowBluefog::Block {
  std::shared_ptr<SharedHeap> heap;
  std::byte* data;
  size_t bytes;
  at::DataPtr before = {};
  std::atomic<int> windows = 0;

  static void end(void* block) {
    const std::unique_ptr<Block> ended(static_cast<Block*>(block));
    ended->heap->giveBack(ended->data, ended->bytes);
  }
};

namespace {

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

// Edges that are this thread's for so long.
class WindowBluefog::Taken {
 public:
  Taken(WindowBluefog& window, const char* op, std::vector<Edge> edges, bool wanted)
      : window_(window) {
    if (wanted) {
      std::erase_if(edges, [&](const Edge& edge) { return window_.held_.isMine(edge); });
      window_.takeAll(op, edges);
      edges_ = std::move(edges);
    }
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
  ~Taken() { window_.letGo(edges_); }

 private:
  WindowBluefog& window_;
  std::vector<Edge> edges_;
};

WindowBluefog::WindowBluefog(Means means, std::string name, at::Tensor tensor, bool is_fresh,
                             bool drops)
    : means_(std::move(means)),
      name_(std::move(name)),
      tensor_(std::move(tensor)),
      drops_(drops),
      sizes_(tensor_.sizes().vec()),
      ledger_(std::make_shared<Ledger>()) {
  const std::string op = who("win_create");
  Validate(means_.engine->members(), "win_create").tensor(tensor_, "the tensor");
  TORCH_CHECK_VALUE(isCombinable(dtypeOf(tensor_)), op, "elements of type ", typeName(tensor_),
                    " cannot be in a window; use a floating, complex or integer type");
  TORCH_CHECK_VALUE(Flat::isPlain(tensor_), op,
                    "the tensor is not contiguous; make the window of tensor.contiguous()");
  const size_t bytes = tensor_.nbytes();
  if (means_.engine->members().size == 1) {
    return;
  }
  if (means_.heap && bytes > 0) {
    place_.tensor = placeInHeap(op, is_fresh);
  }
  storage_ = tensor_.storage();
  storage_.unsafeGetStorageImpl()->set_resizable(false);
  const size_t room = WindowLayout(means_.engine->members().size, bytes).bytes();
  room_ = means_.grounds->take(room);
  TORCH_CHECK(room_ != nullptr, op, "no room for slots of ", room,
              " bytes beside the other windows");
  place_.room = room_->at();
}

WindowBluefog::~WindowBluefog() {
  if (block_ != nullptr) {
    --block_->windows;
  }
  if (means_.reception && window_ && !means_.engine->isForked()) {
    means_.reception->remove(number_);
  }
}

// Where the tensor lies there; moves its storage if it does not yet.
uint64_t WindowBluefog::placeInHeap(const std::string& op, bool is_fresh) {
  const auto place = [this] {
    return means_.heap->placeOf(static_cast<const std::byte*>(tensor_.const_data_ptr()),
                                tensor_.nbytes());
  };
  const c10::Storage& storage = tensor_.storage();
  if (storage.data_ptr().get_deleter() == &Block::end) {
    block_ = static_cast<Block*>(storage.data_ptr().get_context());
  }
  if (const std::optional<uint64_t> there = place()) {
    noteUse();
    return *there;
  }
  TORCH_CHECK_VALUE(block_ == nullptr || block_->windows == 0, op,
                    "the tensor is in a window of another group; give a clone of it");
  const size_t whole = storage.nbytes();
  std::byte* to = means_.heap->take(whole);
  TORCH_CHECK(to != nullptr, op, "no room for ", whole, " bytes beside the other windows");
  copyBytes(to, storage.data(), whole);
  block_ = std::make_unique<Block>(means_.heap, to, whole).release();
  at::DataPtr before =
      storage.unsafeGetStorageImpl()->set_data_ptr({to, block_, &Block::end, at::kCPU});
  if (!is_fresh) {
    block_->before = std::move(before);
  }
  noteUse();
  return *place();
}

void WindowBluefog::noteUse() {
  if (block_ != nullptr) {
    ++block_->windows;
  }
}

void WindowBluefog::open(uint64_t number, const std::vector<WindowPlace>& places, bool zero_init,
                         const std::vector<int>& sources) {
  if (room_ == nullptr) {
    return;
  }
  const Membership& members = means_.engine->members();
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
  const auto asking =
      std::make_shared<Asking>(means_.engine, rank, number, name_, means_.timeout,
                               [ledger = ledger_, rank] { ledger->noteDropped(rank); });
  return std::make_unique<FarReach>(window_, rank, asking);
}

std::string WindowBluefog::who(const char* op) const {
  return means_.engine->members().who() + " " + op + " '" + name_ + "': ";
}

void WindowBluefog::checkProcess(const char* op) const {
  TORCH_CHECK(!means_.engine->isForked(), who(op),
              "this process was forked from the rank's and has no part in its windows");
}

void WindowBluefog::checkGroup(const char* op) const {
  TORCH_CHECK(!means_.engine->hasStopped(), who(op), "the group has ended");
}

Window& WindowBluefog::opened(const char* op) const {
  checkProcess(op);
  checkGroup(op);
  TORCH_CHECK_VALUE(!is_closed_, who(op), "the window was freed");
  TORCH_CHECK(window_ != nullptr, who(op), "there is no other rank in the group");
  TORCH_CHECK_VALUE(tensor_.storage().is_alias_of(storage_), who(op),
                    "the window's tensor has got other memory (tensor.data = ..., set_()?); write "
                    "into it instead: tensor.copy_(...)");
  TORCH_CHECK_VALUE(tensor_.sizes() == sizes_ && tensor_.is_contiguous() &&
                        tensor_.const_data_ptr() == window_->tensor(),
                    who(op),
                    "the window's tensor has got another shape or place in its memory "
                    "(resize_(), t_()?): ",
                    tensor_.sizes(), " instead of ", at::IntArrayRef(sizes_));
  return *window_;
}

void WindowBluefog::check(const char* op, const at::Tensor& tensor) const {
  Validate(means_.engine->members(), op).tensor(tensor, "the tensor");
  TORCH_CHECK_VALUE(tensor.sizes() == sizes_ && tensor.scalar_type() == tensor_.scalar_type(),
                    who(op), "the tensor is ", typeName(tensor), tensor.sizes(), ", the window's ",
                    typeName(tensor_), at::IntArrayRef(sizes_));
}

template <class What>
WindowBluefog::WorkPtr WindowBluefog::with(const char* op, const Ranks& ranks, bool async_op,
                                           What what) {
  const Membership& members = means_.engine->members();
  std::vector<int> dead;
  std::vector<Rest> rests;
  std::exception_ptr failure;
  const auto begin = [&](const WeightedRank& peer) {
    if (means_.lives->hasEnded(peer.rank)) {
      return false;
    }
    try {
      requireThere(op, peer.rank);
      if (Rest rest = what(peer)) {
        rests.push_back(std::move(rest));
      }
    } catch (const Error&) {  // the others get theirs all the same
      if (!failure) {
        failure = std::current_exception();
      }
    }
    return true;
  };
  for (const WeightedRank& peer : ranks) {
    if (!begin(peer)) {
      dead.push_back(members.global(peer.rank));
      ledger_->noteDropped(peer.rank);
    }
  }
  if (!async_op && dead.empty() && rests.empty() && !failure) {
    return nullptr;
  }
  auto work = std::make_shared<WindowWork>(means_.engine, who(op), std::move(dead),
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
      const int rank = means_.engine->members().global(means_.engine->members().rank);
      if (deadline.passed()) {
        throw Error(Cause::kTimeout, {rank},
                    who(op) + "timeout after " + inSeconds(means_.timeout) +
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
  if (window_ == nullptr) {
    return with(op, destinations, opts.async_op, [](const WeightedRank&) { return nullptr; });
  }
  Window& window = opened(op);
  const bool waits = !opts.async_op || opts.require_mutex;
  const auto is_far = [this](const WeightedRank& to) {
    return !means_.engine->hosts().isHere(to.rank);
  };
  const bool copies = !waits && std::any_of(destinations.begin(), destinations.end(), is_far);
  const at::NoGradGuard no_grad;
  const auto flat = std::make_shared<Flat>(copies ? Flat::copy(tensor) : Flat::input(tensor));
  const double p = window.p();
  return with(op, destinations, opts.async_op, [&](const WeightedRank& to) {
    const Taken taken(*this, op, {{to.rank, window.rank()}}, opts.require_mutex);
    const Contribution what{window.shape().dtype, window.shape().count, flat->readable(), to.weight,
                            opts.with_p ? std::optional(to.weight * p) : std::nullopt};
    ledger_->notePut(to.rank, tensor_.nbytes());
    return begun(reach(to.rank).put(what, opts.into, {whoWaits(waits), flat}), opts.require_mutex);
  });
}

WindowBluefog::WorkPtr WindowBluefog::get(const Ranks& sources, bool require_mutex, bool with_p,
                                          bool async_op) {
  const Call call(calls_);
  if (window_ == nullptr) {
    return with("win_get", sources, async_op, [](const WeightedRank&) { return nullptr; });
  }
  Window& window = opened("win_get");
  return with("win_get", sources, async_op, [&](const WeightedRank& from) {
    const Taken taken(*this, "win_get", {{from.rank, window.rank()}}, require_mutex);
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
  const int self = means_.engine->members().rank;
  std::vector<Edge> edges;
  for (const WeightedRank& source : sources) {
    edges.emplace_back(self, source.rank);
  }
  const Taken taken(*this, "win_update", std::move(edges), require_mutex);
  window.update({self_weight, sources, reset, with_p}, out.mutable_data_ptr());
  noteWritten(out);
  return out;
}

at::Tensor WindowBluefog::read(int writer, bool require_mutex) {
  const Call call(calls_);
  Window& window = opened("win_read_neighbor");
  const at::Tensor out = at::empty_like(tensor_);
  const Taken taken(*this, "win_read_neighbor", {{means_.engine->members().rank, writer}},
                    require_mutex);
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
        slot.changesInAll() == 0 ? std::numeric_limits<double>::infinity() : age.count(), slot.p()};
  }
  return states;
}

std::map<int, WindowBluefog::Sent> WindowBluefog::sent() const {
  return ledger_->all();
}

void WindowBluefog::take(const std::vector<Edge>& edges) {
  const Call call(calls_);
  for (const Edge& edge : edges) {
    TORCH_CHECK(!held_.isMine(edge), who("win_mutex"), "this thread holds the mutex already");
  }
  takeAll("win_mutex", edges);
}

// Or none, where one cannot be had.
void WindowBluefog::takeAll(const char* op, std::vector<Edge> edges) {
  // All ranks take them in this order, so that none waits for one that waits for it.
  std::sort(edges.begin(), edges.end());
  for (auto edge = edges.begin(); edge != edges.end(); ++edge) {
    try {
      take(op, *edge);
    } catch (...) {
      letGo(std::vector<Edge>(edges.begin(), edge));
      throw;
    }
  }
}

void WindowBluefog::take(const char* op, const Edge& edge) {
  opened(op);
  const Deadline deadline = Deadline::in(means_.timeout);
  reserve(op, edge, deadline);
  try {
    takeReserved(op, edge, deadline);
  } catch (const Error& error) {
    held_.release(edge);
    const int owner = means_.engine->members().global(edge.first);
    const std::vector<int>& ranks = error.ranks();
    if (error.cause() != Cause::kPeerFailed ||
        std::find(ranks.begin(), ranks.end(), owner) == ranks.end()) {
      throw;  // of one that is dead there is nothing to exclude
    }
  } catch (...) {
    held_.release(edge);
    throw;
  }
}

void WindowBluefog::reserve(const char* op, const Edge& edge, Deadline deadline) {
  while (!held_.reserve(edge, kSlice)) {
    if (deadline.passed()) {
      failLate(op, means_.engine->members().rank);
    }
    opened(op);
    interrupt();
  }
}

void WindowBluefog::takeReserved(const char* op, const Edge& edge, Deadline deadline) {
  if (edge.first != window_->rank()) {
    requireThere(op, edge.first);
  }
  SlotMutex& mutex = mutexOf(edge);
  while (const std::optional<int> holder = mutex.take()) {
    if (deadline.passed()) {
      failLate(op, *holder);
    }
    opened(op);
    interrupt();
    mutex.await(*holder, kSlice);
  }
}

void WindowBluefog::requireThere(const char* op, int rank) const {
  if (!reach(rank).isThere()) {
    const int global = means_.engine->members().global(rank);
    throw Error(Cause::kMismatch, {global},
                who(op) + "rank " + std::to_string(global) + " has no such window any more");
  }
}

void WindowBluefog::failLate(const char* op, int holder) const {
  const int rank = means_.engine->members().global(holder);
  throw Error(Cause::kTimeout, {rank},
              who(op) + "timeout after " + inSeconds(means_.timeout) + "; rank " +
                  std::to_string(rank) + " holds the mutex");
}

SlotMutex& WindowBluefog::mutexOf(const Edge& edge) const {
  const auto& [owner, writer] = edge;
  return owner == window_->rank() ? *own_mutexes_[static_cast<size_t>(writer)]
                                  : reach(owner).mutex();
}

void WindowBluefog::letGo(const std::vector<Edge>& edges) {
  for (const Edge& edge : edges) {
    letGo(edge);
  }
}

void WindowBluefog::letGo(const Edge& edge) {
  if (means_.engine->isForked() || !held_.isMine(edge)) {
    return;  // the parent's; or it was a dead rank's
  }
  const bool is_own = edge.first == window_->rank();
  if (is_own || reach(edge.first).isThere()) {
    mutexOf(edge).letGo();
  }
  held_.release(edge);
}

}  // namespace bluefog
