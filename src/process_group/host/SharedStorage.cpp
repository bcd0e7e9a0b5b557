#include "process_group/host/SharedStorage.hpp"

#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

namespace bluefog {

// A HeapBlock is the context of a storage in the heap, and gives the memory back when the storage
// and its SharedStorages have ended. It keeps the heap. It also keeps the storage's former memory,
// because an array or an operation under way may still point there.
struct SharedStorage::HeapBlock {
  std::shared_ptr<Heap> heap;
  std::byte* data;
  size_t bytes;
  at::DataPtr before = {};
  std::atomic<int> users = 1;  // the storage, and each SharedStorage of it
  bool is_given_back = false;

  ~HeapBlock() { giveBack(); }

  static HeapBlock* of(const at::DataPtr& memory) {
    return memory.get_deleter() == &leave ? static_cast<HeapBlock*>(memory.get_context()) : nullptr;
  }
  // Ends the use of one user.
  static void leave(void* block) {
    auto* left = static_cast<HeapBlock*>(block);
    if (--left->users == 0) {
      const std::unique_ptr<HeapBlock> ended(left);
    }
  }
  void giveBack() {
    if (!std::exchange(is_given_back, true)) {
      heap->giveBack(data, bytes);
    }
  }
  // Gives back what the storage had before its last memory, in heaps whose groups have ended. The
  // addresses stay, since the heaps do. Otherwise a tensor that has a window in each of many groups
  // would take memory for all of them.
  void giveBackOlder() {
    for (HeapBlock* older = of(before); older != nullptr; older = of(older->before)) {
      if (older->heap->hasEnded()) {
        older->giveBack();
      }
    }
  }
};

SharedStorage::SharedStorage(std::shared_ptr<Heap> heap, const at::Tensor& tensor, bool is_fresh,
                             const std::string& who)
    : storage_(tensor.storage()) {
  block_ = HeapBlock::of(storage_.data_ptr());
  const auto look = [&tensor, &there = *heap] {
    return there.placeOf(static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes());
  };
  std::optional<uint64_t> place = look();
  if (!place) {
    move(std::move(heap), is_fresh, who);
    place = look();
  }
  place_ = *place;
  if (block_ != nullptr) {
    ++block_->users;
  }
}

SharedStorage::~SharedStorage() {
  if (block_ != nullptr) {
    HeapBlock::leave(block_);
  }
}

void SharedStorage::move(std::shared_ptr<Heap> heap, bool is_fresh, const std::string& who) {
  TORCH_CHECK_VALUE(block_ == nullptr || block_->users == 1 || block_->heap->hasEnded(), who,
                    "the tensor is in a window of another group; give a clone of it");
  const size_t bytes = storage_.nbytes();
  std::byte* to = heap->take(bytes);
  TORCH_CHECK(to != nullptr, who, "no room for ", bytes, " bytes beside the other windows");
  HeapBlock* block = std::make_unique<HeapBlock>(std::move(heap), to, bytes).release();
  at::DataPtr moved(to, block, &HeapBlock::leave, storage_.device());
  block->heap->copy(to, static_cast<const std::byte*>(storage_.data()), bytes);
  if (block_ != nullptr) {
    block_->giveBackOlder();
  }
  at::DataPtr before = storage_.unsafeGetStorageImpl()->set_data_ptr(std::move(moved));
  block_ = block;
  if (!is_fresh) {
    block_->before = std::move(before);
  }
}

void SharedStorage::abandonPlace() {
  const size_t bytes = storage_.nbytes();
  at::DataPtr own = c10::GetCPUAllocator()->allocate(bytes);
  std::memcpy(own.get(), storage_.data(), bytes);
  at::DataPtr left = storage_.unsafeGetStorageImpl()->set_data_ptr(std::move(own));
  (void)std::make_unique<at::DataPtr>(std::move(left)).release();
}

}  // namespace bluefog
