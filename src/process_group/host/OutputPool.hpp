#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "transport/memory/SharedHeap.hpp"

namespace bluefog {

// Memory for results, used again when the tensor that had it is gone. The page faults of a fresh
// mapping take as long as the averaging itself, or twice as long; what malloc does with a freed
// block depends on what else was freed. Holds idle at most 64 MiB, or twice the largest result. Any
// thread may use it and drop its tensors.
class OutputPool {
 public:
  // Bytes. Below, malloc keeps what is freed.
  static constexpr size_t kSmallest = size_t{256} << 10;

  // With a heap, large results lie where the neighbours on this host can read them.
  explicit OutputPool(std::shared_ptr<SharedHeap> heap = nullptr);

  // A new contiguous tensor of the shape and type of `like`, uninitialised.
  at::Tensor emptyLike(const at::Tensor& like) { return empty(like.sizes(), like.options()); }
  at::Tensor empty(at::IntArrayRef sizes, const at::TensorOptions& options);
  // One for each of them, all in one memory: of many small ones, allocation took longer than their
  // averaging. Tensors on the CPU.
  std::vector<at::Tensor> emptyLikeAll(const std::vector<at::Tensor>& likes);
  // What is idle goes, and what tensors give back from now on.
  void close();
  // Whether the neighbours on this host can read large ones.
  bool isShared() const { return heap_ != nullptr; }
  // Where in the heap that lies; nothing where it lies elsewhere.
  std::optional<uint64_t> placeOf(const std::byte* data, size_t bytes) const {
    return heap_ ? heap_->placeOf(data, bytes) : std::nullopt;
  }

 private:
  class Blocks;
  struct Lent;

  c10::Storage memory(size_t bytes, bool is_resizable);

  std::shared_ptr<SharedHeap> heap_;
  std::shared_ptr<Blocks> blocks_;  // outlived by tensors: each holds a share
};

}  // namespace bluefog
