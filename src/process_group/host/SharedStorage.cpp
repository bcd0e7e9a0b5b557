#include "process_group/host/SharedStorage.hpp"

#include <atomic>
#include <optional>
#include <utility>

namespace bluefog {

// A HeapBlock is the context of a storage in the heap, and gives the memory back at the storage's
// end. It keeps the heap. It also keeps the storage's former memory, because an array or an
// operation under way may still point there.
struct SharedStorage::HeapBlock {
  std::shared_ptr<Heap> heap;
  std::byte* data;
  size_t bytes;
  at::DataPtr before = {};
  std::atomic<int> windows = 0;  // how many SharedStorages there are of the storage

  static void end(void* block) {
    const std::unique_ptr<HeapBlock> ended(static_cast<HeapBlock*>(block));
    ended->heap->giveBack(ended->data, ended->bytes);
  }
};

SharedStorage::SharedStorage(std::shared_ptr<Heap> heap, const at::Tensor& tensor, bool is_fresh,
                             const std::string& who)
    : storage_(tensor.storage()) {
  if (storage_.data_ptr().get_deleter() == &HeapBlock::end) {
    block_ = static_cast<HeapBlock*>(storage_.data_ptr().get_context());
  }
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
    ++block_->windows;
  }
}

SharedStorage::~SharedStorage() {
  if (block_ != nullptr) {
    --block_->windows;
  }
}

void SharedStorage::move(std::shared_ptr<Heap> heap, bool is_fresh, const std::string& who) {
  TORCH_CHECK_VALUE(block_ == nullptr || block_->windows == 0, who,
                    "the tensor is in a window of another group; give a clone of it");
  const size_t bytes = storage_.nbytes();
  std::byte* to = heap->take(bytes);
  TORCH_CHECK(to != nullptr, who, "no room for ", bytes, " bytes beside the other windows");
  HeapBlock* block = std::make_unique<HeapBlock>(std::move(heap), to, bytes).release();
  at::DataPtr moved(to, block, &HeapBlock::end, storage_.device());
  block->heap->copy(to, static_cast<const std::byte*>(storage_.data()), bytes);
  at::DataPtr before = storage_.unsafeGetStorageImpl()->set_data_ptr(std::move(moved));
  block_ = block;
  if (!is_fresh) {
    block_->before = std::move(before);
  }
}

}  // namespace bluefog
