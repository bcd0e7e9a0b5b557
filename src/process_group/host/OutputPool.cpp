#include "process_group/host/OutputPool.hpp"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/alignment.h>
#include <sys/mman.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>

#include "core/Error.hpp"
#include "core/Fd.hpp"
#include "core/OwnProcess.hpp"
#include "transport/tuning/Tuning.hpp"

namespace bluefog {
namespace {

// Rounds up to the alignment of torch's tensors.
size_t aligned(size_t bytes) {
  constexpr size_t kAlignment = c10::gAlignment;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

struct PoolBlock {
  std::shared_ptr<std::byte> data;  // its deleter gives the block back to the heap or the system
  size_t bytes = 0;
};

// Returns a block that the heap has no part in. Throws if the system has no memory.
std::shared_ptr<std::byte> ownBlock(size_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    throwErrno("[bluefog] allocating " + std::to_string(bytes) + " bytes for a result");
  }
  ::madvise(data, bytes, MADV_HUGEPAGE);
  const auto mapping = std::make_shared<Mapping>(data, bytes);
  return {mapping, mapping->data()};
}

PoolBlock freshBlock(const std::shared_ptr<SharedHeap>& heap, size_t bytes) {
  if (std::byte* data = heap ? heap->take(bytes) : nullptr) {
    return {{data, [heap, bytes](std::byte* block) { heap->giveBack(block, bytes); }}, bytes};
  }
  return {ownBlock(bytes), bytes};
}

at::Tensor viewOf(c10::Storage memory, caffe2::TypeMeta dtype) {
  return at::detail::make_tensor<c10::TensorImpl>(
      std::move(memory), c10::DispatchKeySet(c10::DispatchKey::CPU), dtype);
}

}  // namespace

// A IdleBlocks keeps the idle blocks. It exists as long as any tensor that has one of its blocks.
// Thread safety: any thread may call any method.
class OutputPool::IdleBlocks {
 public:
  explicit IdleBlocks(std::shared_ptr<SharedHeap> heap) : heap_(std::move(heap)) {}

  PoolBlock take(size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = std::find_if(idle_.begin(), idle_.end(), [bytes](const PoolBlock& block) {
        return block.bytes == bytes;
      });
      if (found != idle_.end()) {
        PoolBlock block = std::move(*found);
        idle_.erase(found);
        idle_bytes_ -= bytes;
        return block;
      }
      largest_ = std::max(largest_, bytes);
    }
    return freshBlock(heap_, bytes);
  }

  void giveBack(PoolBlock block) {
    if (process_.isForked()) {
      return;  // a thread of the parent may have held the lock, and nobody frees it here
    }
    std::deque<PoolBlock> gone;  // destroyed once the lock is free, because that takes long
    const std::lock_guard lock(mutex_);
    idle_bytes_ += block.bytes;
    idle_.push_back(std::move(block));
    while (idle_bytes_ > (is_closed_ ? 0 : std::max(tuning::kMostIdlePooled, 2 * largest_))) {
      idle_bytes_ -= idle_.front().bytes;
      gone.push_back(std::move(idle_.front()));
      idle_.pop_front();
    }
  }

  void close() {
    if (process_.isForked()) {
      return;
    }
    std::deque<PoolBlock> gone;
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    idle_bytes_ = 0;
    gone.swap(idle_);
  }

 private:
  const OwnProcess process_;
  const std::shared_ptr<SharedHeap> heap_;
  std::mutex mutex_;
  std::deque<PoolBlock> idle_;  // the block that was given back first is in front
  size_t idle_bytes_ = 0;
  size_t largest_ = 0;
  bool is_closed_ = false;
};

// A Lent is a block that is lent to a tensor, as the context of the tensor's storage. The end of
// the storage gives the block back.
struct OutputPool::Lent {
  Lent(std::shared_ptr<IdleBlocks> whose, PoolBlock what)
      : blocks(std::move(whose)), block(std::move(what)) {}

  static void end(void* lent) {
    const std::unique_ptr<Lent> ended(static_cast<Lent*>(lent));
    ended->blocks->giveBack(std::move(ended->block));
  }

  std::shared_ptr<IdleBlocks> blocks;
  PoolBlock block;
};

OutputPool::OutputPool(std::shared_ptr<SharedHeap> heap)
    : heap_(std::move(heap)), blocks_(std::make_shared<IdleBlocks>(heap_)) {}

void OutputPool::close() {
  blocks_->close();
}

at::Tensor OutputPool::empty(at::IntArrayRef sizes, const at::TensorOptions& options) {
  const size_t bytes =
      static_cast<size_t>(c10::multiply_integers(sizes)) * options.dtype().itemsize();
  if (bytes < tuning::kSmallestPooled) {
    return at::Tensor(at::detail::empty_cpu(sizes, options));
  }
  const at::Tensor made = viewOf(memory(bytes, true), options.dtype());
  made.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return made;
}

c10::Storage OutputPool::memory(size_t bytes, bool is_resizable) {
  auto lent = std::make_unique<Lent>(blocks_, blocks_->take(bytes));
  void* data = lent->block.data.get();
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes,
      c10::DataPtr(data, lent.release(), &Lent::end, at::kCPU), c10::GetCPUAllocator(),
      is_resizable);
}

std::vector<at::Tensor> OutputPool::emptyLikeAll(const std::vector<at::Tensor>& likes) {
  size_t bytes = 0;
  for (const at::Tensor& like : likes) {
    bytes += aligned(like.nbytes());
  }
  // The storage is not resizable, because resizing one tensor would take the others' memory, too.
  const c10::Storage memory =
      bytes < tuning::kSmallestPooled
          ? at::detail::empty_cpu({static_cast<int64_t>(bytes)}, at::kByte).storage()
          : this->memory(bytes, false);
  std::vector<at::Tensor> all;
  all.reserve(likes.size());
  size_t at = 0;
  for (const at::Tensor& like : likes) {
    all.push_back(viewOf(memory, like.dtype()));
    c10::TensorImpl& made = *all.back().unsafeGetTensorImpl();
    made.set_storage_offset(static_cast<int64_t>(at / like.element_size()));
    made.set_sizes_contiguous(like.sizes());
    at += aligned(like.nbytes());
  }
  return all;
}

}  // namespace bluefog
