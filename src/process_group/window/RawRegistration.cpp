#include "process_group/window/RawRegistration.hpp"

#ifdef C10D_BACKEND_HAS_WINDOW

#include <ATen/ATen.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "algorithms/Algorithms.hpp"
#include "core/Cores.hpp"
#include "core/Deadline.hpp"
#include "process_group/host/Flat.hpp"
#include "process_group/window/RawCallNames.hpp"
#include "process_group/window/WindowSlice.hpp"
#include "transport/operations/CollectiveOp.hpp"
#include "window/raw/MessageRawPeer.hpp"

namespace bluefog {
namespace {

// Raw windows take their numbers from this one on, and the others stay below it, so that a
// WindowServer finds one window by each number.
constexpr uint64_t kFirstNumber = uint64_t{1} << 30;
constexpr int64_t kNoPlace = -1;
// A release waits this long for a put of another rank that is under way. Only one that is stopped
// amid a put takes longer.
constexpr std::chrono::seconds kLongestPut{1};
// This many operations may be remembered as under way though they have ended.
constexpr size_t kMostRawUnderWay = 64;

uint64_t nextNumber() {
  static std::atomic<uint64_t> made{0};
  return kFirstNumber + made++ % kFirstNumber;
}

// Exchanges rows of equal length among all ranks, and returns them one after the other.
std::vector<int64_t> gathered(const WindowResources& resources, const char* title,
                              std::vector<int64_t> row) {
  struct Table {
    std::vector<int64_t> row;
    std::vector<int64_t> all;
  };
  Engine& engine = *resources.engine;
  const auto size = static_cast<size_t>(engine.members().size);
  const size_t bytes = row.size() * sizeof(int64_t);
  const auto table = std::make_shared<Table>(Table{std::move(row), {}});
  table->all.resize(table->row.size() * size);
  std::vector<std::byte*> parts;
  for (size_t rank = 0; rank < size; ++rank) {
    parts.push_back(reinterpret_cast<std::byte*>(table->all.data() + rank * table->row.size()));
  }
  auto op = std::make_shared<CollectiveOp>(
      Signature{.kind = OpKind::kAllGather, .dtype = Dtype::kInt64, .count = table->row.size()},
      Deadline::in(resources.timeout));
  op->title = title;
  op->tasks.push_back(allgather(engine.board(), engine.returns(), *op,
                                reinterpret_cast<const std::byte*>(table->row.data()),
                                std::move(parts), std::vector<size_t>(size, bytes)));
  op->memory = table;
  engine.post(op, Engine::Who::kCaller);
  engine.wait(*op, Deadline::never());
  if (op->error) {
    std::rethrow_exception(op->error);
  }
  return table->all;
}

}  // namespace

// A RankRow is what a rank tells the others when it registers a tensor, or ends a registration.
struct RawRegistration::RankRow {
  enum RowKind : int64_t { kBegins = 1, kEnds = 2 };

  int64_t kind = kBegins;
  int64_t has_failed = 0;
  int64_t number = 0;  // rank 0's number becomes everybody's; that of the registration that ends
  int64_t type = 0;
  int64_t elements = 0;
  int64_t dimensions = 0;
  int64_t room = 0;
  int64_t place = kNoPlace;  // in the rank's heap

  // Exchanges the rows. Throws Mismatch on all ranks if they do not all begin, or end one
  // registration.
  static std::vector<RankRow> exchange(const WindowResources& resources, const char* op,
                                       const RankRow& mine);
};

std::vector<RawRegistration::RankRow> RawRegistration::RankRow::exchange(
    const WindowResources& resources, const char* op, const RankRow& mine) {
  static_assert(sizeof(RankRow) % sizeof(int64_t) == 0);
  std::vector<int64_t> row(sizeof(RankRow) / sizeof(int64_t));
  std::memcpy(row.data(), &mine, sizeof mine);
  const std::vector<int64_t> table = gathered(resources, op, std::move(row));
  const Membership& members = resources.engine->members();
  std::vector<RankRow> rows(static_cast<size_t>(members.size));
  std::memcpy(static_cast<void*>(rows.data()), table.data(), rows.size() * sizeof(RankRow));
  std::vector<int> others;
  for (int rank = 0; rank < members.size; ++rank) {
    const RankRow& theirs = rows[static_cast<size_t>(rank)];
    if (theirs.kind != rows[0].kind || (theirs.kind == kEnds && theirs.number != rows[0].number)) {
      others.push_back(members.global(rank));
    }
  }
  if (!others.empty()) {
    throw Error(Cause::kMismatch, others,
                members.who() + " " + op + ": " + rankList(others) +
                    " register or deregister another window's tensor than rank " +
                    std::to_string(members.global(0)));
  }
  return rows;
}

std::shared_ptr<RawRegistration> RawRegistration::make(const WindowResources& resources,
                                                       const at::Tensor& tensor) {
  const std::shared_ptr<RawRegistration> made(new RawRegistration(resources, tensor));
  const Membership& members = made->members();
  RankRow mine{.number = static_cast<int64_t>(nextNumber())};
  std::exception_ptr error;
  try {
    made->settle(tensor);
    mine.type = static_cast<int64_t>(tensor.scalar_type());
    mine.elements = tensor.numel();
    mine.dimensions = tensor.dim();
    mine.room = static_cast<int64_t>(made->block_->at());
    mine.place = made->shared_ ? static_cast<int64_t>(made->shared_->place()) : kNoPlace;
  } catch (const std::exception&) {
    error = std::current_exception();
    mine.has_failed = 1;
  }
  const std::vector<RankRow> rows = RankRow::exchange(resources, raw_calls::kRegister, mine);
  if (error) {
    std::rethrow_exception(error);
  }
  std::vector<int> failed;
  std::vector<int> unlike;
  for (int rank = 0; rank < members.size; ++rank) {
    const RankRow& row = rows[static_cast<size_t>(rank)];
    if (row.has_failed != 0) {
      failed.push_back(members.global(rank));
    } else if (row.type != mine.type) {
      unlike.push_back(rank);
    }
  }
  TORCH_CHECK(failed.empty(), made->who(raw_calls::kRegister), rankList(failed),
              " could not register their tensor");
  if (!unlike.empty()) {
    const auto theirs = static_cast<at::ScalarType>(rows[static_cast<size_t>(unlike.front())].type);
    throw Error(Cause::kMismatch, members.global(unlike),
                made->who(raw_calls::kRegister) + "this rank's tensor is " + typeName(tensor) +
                    ", that of rank " + std::to_string(members.global(unlike.front())) + " " +
                    typeName(theirs) + "; the tensors of a window have one type");
  }
  try {
    made->open(static_cast<uint64_t>(rows[0].number), rows);
  } catch (const std::exception&) {
    error = std::current_exception();
  }
  made->gatherShapes(rows, error);
  resources.open->add(made);
  return made;
}

// Checks the tensor, moves it to where the other ranks reach it, and takes memory for signals.
void RawRegistration::settle(const at::Tensor& tensor) {
  const std::string begin = who(raw_calls::kRegister);
  TORCH_CHECK_VALUE(tensor.defined(), begin, "the tensor is not a tensor");
  TORCH_CHECK_VALUE(tensor.is_cpu(), begin, "the tensor is on ", tensor.device(),
                    ", and c10d's windows are for CPU tensors; use bluefog_pg.Window, or "
                    "bluefog_pg.torch.win_create, for tensors on a device");
  Validate(members(), raw_calls::kRegister).tensor(tensor, "the tensor");
  TORCH_CHECK_VALUE(Flat::isPlain(tensor), begin,
                    "the tensor is not contiguous; register tensor.contiguous()");
  tensor_ = tensor.detach();
  (void)tensor_.mutable_data_ptr();  // A copy that torch has put off is made now.
  if (resources_.heap && resources_.engine->hosts().here().size() > 1 && tensor_.nbytes() > 0) {
    shared_.emplace(resources_.heap, tensor_, false, begin);
  }
  tensor_.storage().unsafeGetStorageImpl()->set_resizable(false);
  block_ = resources_.memory->take(RawRoom::bytesFor(members().size));
  TORCH_CHECK(block_ != nullptr, begin, "no room for signals beside the other windows");
}

// Opens this rank's part, and the ways to the others.
void RawRegistration::open(uint64_t number, const std::vector<RankRow>& rows) {
  const Membership& members = this->members();
  const HostMap& hosts = resources_.engine->hosts();
  has_own_core_ = static_cast<size_t>(Cores::usable().count()) >= hosts.here().size();
  auto* data = static_cast<std::byte*>(tensor_.mutable_data_ptr());
  part_ = std::make_shared<RawPart>(members.rank, members.size, number,
                                    RawPart::RawSpan{data, tensor_.nbytes()}, std::move(block_));
  for (int rank = 0; rank < members.size; ++rank) {
    const RankRow& row = rows[static_cast<size_t>(rank)];
    if (rank == members.rank) {
      peers_.push_back(std::make_unique<MappedRawPeer>(
          part_, rank, part_->room(), std::shared_ptr<std::byte>(std::shared_ptr<void>(), data)));
    } else if (hosts.isHere(rank)) {
      resources_.liveness->watch(rank, resources_.memory->hasLeft(rank));
      std::shared_ptr<std::byte> heap;
      if (row.place != kNoPlace) {
        heap = resources_.memory->heapToWrite(rank);
        heap = std::shared_ptr<std::byte>(heap, heap.get() + row.place);
      }
      auto peer = std::make_unique<MappedRawPeer>(
          part_, rank, RawRoom(resources_.memory->room(rank) + row.room), std::move(heap));
      writers_.push_back(peer.get());
      peers_.push_back(std::move(peer));
    } else {
      peers_.push_back(std::make_unique<MessageRawPeer>(std::make_shared<WindowClient>(
          resources_.engine, rank, number, "", resources_.timeout, Cause::kMismatch, [] {})));
    }
  }
  if (resources_.server) {
    resources_.server->add(number, *part_);
  }
  part_->setOpen(true);
}

// Exchanges the shapes. A rank that has come from here may write to any other, because all have
// opened their parts.
void RawRegistration::gatherShapes(const std::vector<RankRow>& rows, std::exception_ptr error) {
  int64_t most = 0;
  for (const RankRow& row : rows) {
    most = std::max(most, row.dimensions);
  }
  const auto width = static_cast<size_t>(1 + most);
  std::vector<int64_t> mine(width);
  mine[0] = error ? 1 : 0;
  std::copy(tensor_.sizes().begin(), tensor_.sizes().end(), mine.begin() + 1);
  const std::vector<int64_t> table = gathered(resources_, raw_calls::kRegister, std::move(mine));
  if (error) {
    std::rethrow_exception(error);
  }
  std::vector<int> failed;
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    const auto row = table.begin() + static_cast<ptrdiff_t>(rank * width);
    if (*row != 0) {
      failed.push_back(members().global(static_cast<int>(rank)));
    }
    shapes_.push_back({static_cast<at::ScalarType>(rows[rank].type),
                       std::vector<int64_t>(row + 1, row + 1 + rows[rank].dimensions),
                       rows[rank].elements});
  }
  TORCH_CHECK(failed.empty(), who(raw_calls::kRegister), rankList(failed),
              " could not open the window");
}

RawRegistration::~RawRegistration() {
  release();
}

at::Tensor RawRegistration::tensorOf(int rank) const {
  if (rank == members().rank) {
    return tensor_.detach();
  }
  const RawShape& shape = shapeOf(rank);
  const at::TensorOptions options = at::TensorOptions().dtype(shape.type).device(at::kCPU);
  const auto found = std::find_if(writers_.begin(), writers_.end(),
                                  [rank](const auto* peer) { return peer->rank() == rank; });
  const std::shared_ptr<std::byte> memory = (*found)->memory();
  if (memory == nullptr) {
    return at::empty(shape.sizes, options);
  }
  return at::from_blob(memory.get(), shape.sizes, [memory](void*) {}, options);
}

RawRegistration::CallLock RawRegistration::beginCall(const char* op) {
  CallLock lock(calls_);
  TORCH_CHECK(!isClosed(), who(op), "the window's tensor was deregistered");
  checkPlace(op);
  return lock;
}

bool RawRegistration::isInPlace() const {
  return tensor_.const_data_ptr() == part_->memory().data;
}

void RawRegistration::checkPlace(const char* op) const {
  TORCH_CHECK_VALUE(isInPlace(), who(op),
                    "the window's tensor has other memory than it was registered with, as after "
                    "share_memory_(); do that before, or deregister the tensor and register it "
                    "again");
}

void RawRegistration::track(const PendingOp& pending) {
  if (pending) {
    const std::lock_guard lock(mutex_);
    if (under_way_.size() >= kMostRawUnderWay) {
      std::erase_if(under_way_, [](const PendingOp& before) { return before->hasEnded(); });
    }
    under_way_.push_back(pending);
  }
}

void RawRegistration::checkLiving(const char* op, int rank) const {
  if (resources_.liveness->hasEnded(rank)) {
    const int global = members().global(rank);
    throw Error(Cause::kPeerFailed, {global},
                who(op) + "rank " + std::to_string(global) + " died or left the group");
  }
}

// Waits for calls of this rank's other threads, and for what is under way to other hosts.
void RawRegistration::close(const char* op) {
  is_closed_ = true;
  const Deadline deadline = Deadline::in(resources_.timeout);
  try {
    while (!calls_.try_lock_for(kSlice)) {
      if (deadline.passed()) {
        throw Error(Cause::kTimeout, {members().global(members().rank)},
                    who(op) + "timeout after " + inSeconds(resources_.timeout) +
                        "; a thread of this rank is in a call of the window");
      }
      if (resources_.interrupt) {
        resources_.interrupt();
      }
    }
    calls_.unlock();
    const std::lock_guard lock(mutex_);
    for (const PendingOp& pending : under_way_) {
      resources_.engine->wait(*pending, Deadline::never());
    }
  } catch (...) {
    is_closed_ = false;
    throw;
  }
}

void RawRegistration::end(const char* op) {
  close(op);
  try {
    RankRow::exchange(resources_, op,
                      {.kind = RankRow::kEnds, .number = static_cast<int64_t>(part_->number())});
  } catch (const Error& error) {
    if (error.cause() == Cause::kMismatch) {
      is_closed_ = false;
      throw;
    }
    release();
    throw;
  } catch (...) {
    release();
    throw;
  }
  release();
}

void RawRegistration::release() {
  is_closed_ = true;
  if (is_released_.exchange(true) || part_ == nullptr || resources_.engine->isForked()) {
    return;
  }
  // Other ranks trust that this one writes to nobody once it has left the group.
  if (calls_.try_lock_for(kLongestPut)) {
    calls_.unlock();
  }
  part_->setOpen(false);
  if (resources_.server) {
    resources_.server->remove(part_->number());
  }
  if (!awaitWriters()) {
    // A rank that is stopped amid a put may go on with it at any time, so its target stays.
    if (shared_ && isInPlace()) {
      shared_->abandonPlace();
    }
    (void)std::make_unique<std::shared_ptr<RawPart>>(part_).release();
  }
  shared_.reset();
}

// Returns false if a living rank of this host is in a put to this one for too long.
bool RawRegistration::awaitWriters() const {
  const auto end = Deadline::Clock::now() + kLongestPut;
  for (const MappedRawPeer* writer : writers_) {
    while (writer->isWriting() && !resources_.liveness->hasEnded(writer->rank())) {
      if (Deadline::Clock::now() > end) {
        return false;
      }
      ::sched_yield();
    }
  }
  return true;
}

}  // namespace bluefog

#endif
