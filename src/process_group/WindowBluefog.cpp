#include "process_group/WindowBluefog.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "core/Deadline.hpp"
#include "process_group/Flat.hpp"
#include "window/Combine.hpp"

namespace bluefog {
namespace {

// How long a wait for a mutex sleeps before it looks after its caller's business.
constexpr std::chrono::milliseconds kSlice{20};

// Of a storage in the heap, which keeps that.
struct Block {
  std::shared_ptr<SharedHeap> heap;
  std::byte* data;
  size_t bytes;

  static void end(void* block) {
    const std::unique_ptr<Block> ended(static_cast<Block*>(block));
    ended->heap->giveBack(ended->data, ended->bytes);
  }
};

}  // namespace

// Edges that are this thread's for so long.
class WindowBluefog::Taken {
 public:
  Taken(WindowBluefog& window, const char* op, std::vector<Edge> edges, bool wanted)
      : window_(window) {
    if (wanted) {
      std::sort(edges.begin(), edges.end());
      for (const Edge& edge : edges) {
        if (!window_.isMine(edge)) {
          window_.take(op, edge);
          edges_.push_back(edge);
        }
      }
    }
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
  ~Taken() {
    for (const Edge& edge : edges_) {
      window_.letGo(edge);
    }
  }

 private:
  WindowBluefog& window_;
  std::vector<Edge> edges_;
};

WindowBluefog::WindowBluefog(Ground ground, std::string name, at::Tensor tensor)
    : ground_(std::move(ground)), name_(std::move(name)), tensor_(std::move(tensor)) {
  const std::string op = who("win_create");
  Validate(ground_.engine->members(), "win_create").tensor(tensor_, "the tensor");
  TORCH_CHECK_VALUE(isCombinable(dtypeOf(tensor_)), op, "elements of type ", typeName(tensor_),
                    " cannot be in a window; use a floating, complex or integer type");
  TORCH_CHECK_VALUE(Flat::isPlain(tensor_), op, "the tensor is not contiguous");
  const size_t bytes = tensor_.nbytes();
  if (ground_.grounds == nullptr) {
    return;  // a rank alone
  }
  const c10::Storage& storage = tensor_.storage();
  const auto* begin = static_cast<const std::byte*>(tensor_.const_data_ptr());
  if (bytes > 0 && !ground_.heap->placeOf(begin, bytes)) {
    const size_t whole = storage.nbytes();
    std::byte* to = ground_.heap->take(whole);
    TORCH_CHECK(to != nullptr, op, "no room for ", whole, " bytes beside the other windows");
    copyBytes(to, storage.data(), whole);
    auto block = std::make_unique<Block>(ground_.heap, to, whole);
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(
        {to, block.release(), &Block::end, at::kCPU});
    begin = static_cast<const std::byte*>(tensor_.const_data_ptr());
  }
  storage_ = storage;
  place_.second = bytes > 0 ? *ground_.heap->placeOf(begin, bytes) : 0;
  room_bytes_ = WindowLayout(ground_.engine->members().size, bytes).bytes();
  const std::optional<uint64_t> room = ground_.grounds->take(room_bytes_);
  TORCH_CHECK(room.has_value(), op, "no room for slots of ", room_bytes_,
              " bytes beside the other windows");
  place_.first = *room;
}

WindowBluefog::~WindowBluefog() {
  if (room_bytes_ > 0 && !ground_.engine->isForked()) {
    ground_.grounds->giveBack(place_.first, room_bytes_);
  }
}

void WindowBluefog::open(const std::vector<Place>& places, bool zero_init,
                         const std::vector<int>& sources) {
  if (room_bytes_ == 0) {
    return;
  }
  std::vector<WindowPlace> all;
  for (const auto& [room, tensor] : places) {
    all.push_back({room, tensor});
  }
  const WindowShape shape{dtypeOf(tensor_), static_cast<size_t>(tensor_.numel())};
  auto* data = static_cast<std::byte*>(tensor_.mutable_data_ptr());
  window_ = std::make_unique<Window>(ground_.grounds, ground_.engine->members().rank, shape, data,
                                     std::move(all));
  window_->setP(1);
  if (!zero_init) {
    for (const int source : sources) {
      Slot slot = window_->slotOf(source);
      slot.fill({shape.dtype, shape.count, data, 1, 0});
      slot.hold(Slot::Then::kIsSeen);
    }
  }
}

std::string WindowBluefog::who(const char* op) const {
  return ground_.engine->members().who() + " " + op + " '" + name_ + "': ";
}

Window& WindowBluefog::opened(const char* op) const {
  TORCH_CHECK(!ground_.engine->isForked(), who(op),
              "this process was forked from the rank's and has no part in its windows");
  TORCH_CHECK(!ground_.engine->hasStopped(), who(op), "the group has ended");
  TORCH_CHECK(window_ != nullptr, who(op), "there is no other rank in the group");
  TORCH_CHECK_VALUE(tensor_.storage().is_alias_of(storage_), who(op),
                    "the window's tensor has got other memory (tensor.data = ..., set_()?); write "
                    "into it instead: tensor.copy_(...)");
  return *window_;
}

void WindowBluefog::check(const char* op, const at::Tensor& tensor) const {
  Validate(ground_.engine->members(), op).tensor(tensor, "the tensor");
  TORCH_CHECK_VALUE(
      tensor.sizes() == tensor_.sizes() && tensor.scalar_type() == tensor_.scalar_type(), who(op),
      "the tensor is ", typeName(tensor), tensor.sizes(), ", the window's ", typeName(tensor_),
      tensor_.sizes());
}

void WindowBluefog::put(const at::Tensor& tensor, const Ranks& destinations, bool accumulate,
                        bool require_mutex, bool with_p) {
  const char* op = accumulate ? "win_accumulate" : "win_put";
  check(op, tensor);
  if (destinations.empty()) {
    return;
  }
  Window& window = opened(op);
  const Membership& members = ground_.engine->members();
  std::vector<int> dead;
  const Flat flat = Flat::input(tensor);
  for (const WeightedRank& to : destinations) {
    if (ground_.lives->hasEnded(to.rank)) {
      dead.push_back(members.global(to.rank));
      continue;
    }
    const Taken taken(*this, op, {{to.rank, members.rank}}, require_mutex);
    window.put(to.rank, flat.readable(), to.weight,
               accumulate ? Window::Into::kAdd : Window::Into::kReplace, with_p);
  }
  if (!dead.empty()) {
    throw Error(Cause::kPeerFailed, dead,
                who(op) + rankList(dead) + " died; the others have got it");
  }
}

void WindowBluefog::get(const Ranks& sources, bool require_mutex) {
  if (sources.empty()) {
    return;
  }
  Window& window = opened("win_get");
  const int self = ground_.engine->members().rank;
  for (const WeightedRank& from : sources) {
    const Taken taken(*this, "win_get", {{from.rank, self}}, require_mutex);
    window.get(from.rank, from.weight);
  }
}

at::Tensor WindowBluefog::update(double self_weight, const Ranks& sources, bool reset, bool clone,
                                 bool require_mutex, bool with_p) {
  const at::NoGradGuard no_grad;
  const at::Tensor out = clone ? at::empty_like(tensor_) : tensor_;
  if (window_ == nullptr) {
    alone_p_ *= with_p ? self_weight : 1;
    combine(dtypeOf(tensor_), out.mutable_data_ptr(), {tensor_.const_data_ptr()}, {self_weight},
            static_cast<size_t>(tensor_.numel()));
    return out;
  }
  Window& window = opened("win_update");
  const int self = ground_.engine->members().rank;
  std::vector<Edge> edges;
  for (const WeightedRank& source : sources) {
    edges.emplace_back(self, source.rank);
  }
  const Taken taken(*this, "win_update", std::move(edges), require_mutex);
  window.update({self_weight, sources, reset, with_p}, out.mutable_data_ptr());
  if (!out.is_inference()) {
    out.unsafeGetTensorImpl()->bump_version();
  }
  return out;
}

at::Tensor WindowBluefog::read(int writer, bool require_mutex) {
  Window& window = opened("win_read_neighbor");
  const at::Tensor out = at::empty_like(tensor_);
  const Taken taken(*this, "win_read_neighbor", {{ground_.engine->members().rank, writer}},
                    require_mutex);
  window.read(writer, out.mutable_data_ptr());
  return out;
}

void WindowBluefog::multiplyP(double factor) {
  if (window_ == nullptr) {
    alone_p_ *= factor;
  } else {
    window_->setP(window_->p() * factor);
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

bool WindowBluefog::isMine(const Edge& edge) const {
  const std::lock_guard lock(mutex_);
  const auto found = taken_.find(edge);
  return found != taken_.end() && found->second == std::this_thread::get_id();
}

void WindowBluefog::take(const std::vector<Edge>& edges) {
  for (const Edge& edge : edges) {
    TORCH_CHECK(!isMine(edge), who("win_mutex"), "this thread holds the mutex already");
  }
  std::vector<Edge> sorted = edges;
  // All ranks take them in this order, so that none waits for one that waits for it.
  std::sort(sorted.begin(), sorted.end());
  for (auto edge = sorted.begin(); edge != sorted.end(); ++edge) {
    try {
      take("win_mutex", *edge);
    } catch (...) {
      letGo(std::vector<Edge>(sorted.begin(), edge));
      throw;
    }
  }
}

void WindowBluefog::letGo(const std::vector<Edge>& edges) {
  for (const Edge& edge : edges) {
    letGo(edge);
  }
}

void WindowBluefog::take(const char* op, const Edge& edge) {
  EdgeMutex& mutex = opened(op).mutex(edge.first, edge.second);
  const Membership& members = ground_.engine->members();
  const Deadline deadline = Deadline::in(ground_.timeout);
  while (const std::optional<int> holder = mutex.take(members.rank)) {
    if (*holder != members.rank && ground_.lives->hasEnded(*holder) &&
        mutex.takeFrom(*holder, members.rank)) {
      break;
    }
    if (deadline.passed()) {
      const int global = members.global(*holder);
      throw Error(Cause::kTimeout, {global},
                  who(op) + "timeout after " + inSeconds(ground_.timeout) + "; rank " +
                      std::to_string(global) + " holds the mutex");
    }
    if (ground_.interrupt) {
      ground_.interrupt();
    }
    mutex.await(*holder, kSlice);
  }
  const std::lock_guard lock(mutex_);
  taken_[edge] = std::this_thread::get_id();
}

void WindowBluefog::letGo(const Edge& edge) {
  {
    const std::lock_guard lock(mutex_);
    taken_.erase(edge);
  }
  window_->mutex(edge.first, edge.second).letGo();
}

}  // namespace bluefog
