#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "transport/memory/SharedHeap.hpp"

namespace bluefog {

// An OutputPool provides memory for results, and uses it again when the tensor that had it is gone.
// The page faults of a fresh mapping take as long as the averaging itself, or twice as long.
// malloc's use of a freed block depends on what else was freed. The pool owns at most 64 MiB of
// idle memory, or twice the largest result if that is more. Its tensors may outlive it.
// Thread safety: any thread may call any method, and drop the tensors.
class OutputPool {
 public:
  // `heap` may be null. If it is not, large results lie in it, where the neighbors on this host can
  // read them.
  explicit OutputPool(std::shared_ptr<SharedHeap> heap = nullptr);

  // Returns a new contiguous tensor of the shape and type of `like`, which is not initialized.
  at::Tensor emptyLike(const at::Tensor& like) { return empty(like.sizes(), like.options()); }
  at::Tensor empty(at::IntArrayRef sizes, const at::TensorOptions& options);
  // Returns a tensor like each of these, which must be on the CPU, all in one block of memory.
  // Allocating many small tensors one by one took longer than averaging them.
  std::vector<at::Tensor> emptyLikeAll(const std::vector<at::Tensor>& likes);
  // Frees the idle memory now, and from now on what tensors give back.
  void close();
  // Returns whether the neighbors on this host can read large results in place.
  bool isShared() const { return heap_ != nullptr; }
  // Returns the data's distance in bytes from the start of the heap, or nothing if it lies
  // elsewhere.
  std::optional<uint64_t> placeOf(const std::byte* data, size_t bytes) const {
    return heap_ ? heap_->placeOf(data, bytes) : std::nullopt;
  }

 private:
  class IdleBlocks;
  struct Lent;

  c10::Storage memory(size_t bytes, bool is_resizable);

  std::shared_ptr<SharedHeap> heap_;
  std::shared_ptr<IdleBlocks> blocks_;  // kept by each tensor, too
};

}  // namespace bluefog
