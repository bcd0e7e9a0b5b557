#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "core/Heap.hpp"

namespace bluefog {

// A tensor's storage, in memory that the other ranks of the host can read. It stays there, and
// belongs to whoever refers to the storage.
class SharedStorage {
 public:
  // Moves it there if it does not lie there yet. `is_fresh`: nothing else points to its memory,
  // which is freed. What it throws begins with `who`.
  SharedStorage(std::shared_ptr<Heap> heap, const at::Tensor& tensor, bool is_fresh,
                const std::string& who);
  ~SharedStorage();
  SharedStorage(const SharedStorage&) = delete;
  SharedStorage& operator=(const SharedStorage&) = delete;

  // Where the tensor lies in the heap.
  uint64_t place() const { return place_; }

 private:
  struct HeapBlock;

  void move(std::shared_ptr<Heap> heap, bool is_fresh, const std::string& who);

  const c10::Storage storage_;
  HeapBlock* block_ = nullptr;  // null where it is a result's memory
  uint64_t place_;
};

}  // namespace bluefog
