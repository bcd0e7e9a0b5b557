#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "core/Heap.hpp"

namespace bluefog {

// A SharedStorage has a tensor's storage in memory that the other ranks of the host can read, for
// as long as it exists. It keeps the storage. The memory itself belongs to the storage, which stays
// there beyond the SharedStorage. Should torch give the storage other memory meanwhile, as
// share_memory_() does, the former memory stays for as long as the SharedStorage.
// Thread safety: place() may be called by any thread. Only one thread at a time may make a
// SharedStorage of the same storage.
class SharedStorage {
 public:
  // Moves the storage into the heap if it does not lie there yet. `is_fresh` means that nothing
  // else points to its former memory, which is then freed. Throws an error that begins with `who`
  // if another living group has the storage in a window, or the heap is full.
  SharedStorage(std::shared_ptr<Heap> heap, const at::Tensor& tensor, bool is_fresh,
                const std::string& who);
  ~SharedStorage();
  SharedStorage(const SharedStorage&) = delete;
  SharedStorage& operator=(const SharedStorage&) = delete;

  // Returns where the tensor lies in the heap; see Heap::placeOf().
  uint64_t place() const { return place_; }
  // Moves the storage out of the heap, so that nobody else can write to it. The memory that it
  // leaves there stays allocated forever, for a process that may go on to write to it at any time.
  void abandonPlace();

 private:
  struct HeapBlock;

  void move(std::shared_ptr<Heap> heap, bool is_fresh, const std::string& who);

  const c10::Storage storage_;
  HeapBlock* block_ = nullptr;  // null if the storage has its memory from an OutputPool
  uint64_t place_;
};

}  // namespace bluefog
