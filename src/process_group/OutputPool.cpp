#include "process_group/OutputPool.hpp"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/alignment.h>
#include <sys/mman.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>

#include "core/Error.hpp"
#include "core/Fd.hpp"

namespace bluefog {
namespace {

// Below, malloc keeps what is freed.
constexpr size_t kSmallest = size_t{256} << 10;
constexpr size_t kMostIdle = size_t{64} << 20;

// As torch aligns tensors.
size_t aligned(size_t bytes) {
  constexpr size_t kAlignment = c10::gAlignment;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Mapping freshBlock(size_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    throwErrno("[bluefog] allocating " + std::to_string(bytes) + " bytes for a result");
  }
  ::madvise(data, bytes, MADV_HUGEPAGE);
  return {data, bytes};
}

}  // namespace

class OutputPool::Blocks {
 public:
  Mapping take(size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = std::find_if(idle_.begin(), idle_.end(), [bytes](const Mapping& block) {
        return block.size() == bytes;
      });
      if (found != idle_.end()) {
        Mapping block = std::move(*found);
        idle_.erase(found);
        idle_bytes_ -= bytes;
        return block;
      }
      largest_ = std::max(largest_, bytes);
    }
    return freshBlock(bytes);
  }

  void giveBack(Mapping block) {
    const std::lock_guard lock(mutex_);
    idle_bytes_ += block.size();
    idle_.push_back(std::move(block));
    while (idle_bytes_ > std::max(kMostIdle, 2 * largest_)) {
      idle_bytes_ -= idle_.front().size();
      idle_.pop_front();
    }
  }

 private:
  std::mutex mutex_;
  std::deque<Mapping> idle_;  // the oldest first
  size_t idle_bytes_ = 0;
  size_t largest_ = 0;
};

OutputPool::OutputPool() : blocks_(std::make_shared<Blocks>()) {}

at::Tensor OutputPool::empty(at::IntArrayRef sizes, const at::TensorOptions& options) {
  const size_t bytes =
      static_cast<size_t>(c10::multiply_integers(sizes)) * options.dtype().itemsize();
  if (bytes < kSmallest) {
    return at::Tensor(at::detail::empty_cpu(sizes, options));
  }
  auto block = std::make_shared<Mapping>(blocks_->take(bytes));
  void* data = block->data();
  return at::from_blob(
      data, sizes, [blocks = blocks_, block](void*) { blocks->giveBack(std::move(*block)); },
      options);
}

std::vector<at::Tensor> OutputPool::emptyLikeAll(const std::vector<at::Tensor>& likes) {
  size_t bytes = 0;
  for (const at::Tensor& like : likes) {
    bytes += aligned(like.nbytes());
  }
  const c10::Storage memory = empty({static_cast<int64_t>(bytes)}, at::kByte).storage();
  std::vector<at::Tensor> all;
  all.reserve(likes.size());
  size_t at = 0;
  for (const at::Tensor& like : likes) {
    all.push_back(at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(memory), c10::DispatchKeySet(c10::DispatchKey::CPU), like.dtype()));
    c10::TensorImpl& made = *all.back().unsafeGetTensorImpl();
    made.set_storage_offset(static_cast<int64_t>(at / like.element_size()));
    made.set_sizes_contiguous(like.sizes());
    at += aligned(like.nbytes());
  }
  return all;
}

}  // namespace bluefog
