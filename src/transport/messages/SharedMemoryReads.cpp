#include "transport/messages/SharedMemoryReads.hpp"

#include <sys/mman.h>

#include <atomic>
#include <optional>

#include "transport/tuning/Tuning.hpp"

namespace bluefog {
const std::byte* SharedMemoryReads::find(const ReceiveState& message) {
  if (!message.offer || !isStillOffered(message)) {
    return nullptr;
  }
  const Mapping* heap = heapOf(message.source);
  if (heap == nullptr) {
    return nullptr;
  }
  if (*message.offer > heap->size() || message.bytes > heap->size() - *message.offer) {
    throw damaged(state_.members, message.source, "a message");
  }
  return heap->data() + *message.offer;
}

const Mapping* SharedMemoryReads::heapOf(int peer) {
  std::optional<Mapping>& heap = state_.lane(peer).heap;
  if (!heap) {
    heap = state_.segments.with(peer).map(Segment::Area::kHeap, peer, PROT_READ);
    if (heap->size() > 0) {
      ::madvise(heap->data(), heap->size(), MADV_DONTFORK);
    }
  }
  return heap->size() > 0 ? &*heap : nullptr;
}

// The sender stores `offers_over` before it changes the memory, so a reader that finds the old
// value after it has read has read the old bytes.
bool SharedMemoryReads::isStillOffered(const ReceiveState& message) const {
  std::atomic_thread_fence(std::memory_order_acquire);
  const Lane& from = state_.lane(message.source);
  return from.their_offers_over->load(std::memory_order_relaxed) <= message.id;
}

void SharedMemoryReads::finish(ReceiveState& message) {
  message.stage = ReceiveState::Stage::kComplete;
  state_.lane(message.source).coming.erase(message.id);
  control_.send(message.source, {.id = message.id, .kind = ControlMessage::kFinished});
}

// Where cores share no cache, a reader waits for each line that lies in the writer's cache, so what
// does not stay in a shared one had better go to memory at once.
Stores SharedMemoryReads::storesFor(size_t bytes) const {
  const size_t all = bytes * state_.segments.hosts().here().size();
  return all <= tuning::kStaysInSharedCache ? state_.store_policy.preferred() : Stores::kStreamed;
}

void SharedMemoryReads::endOffers(int destination, uint64_t id) {
  std::atomic<uint64_t>& over = *state_.lane(destination).offers_over;
  if (over.load(std::memory_order_relaxed) <= id) {
    over.store(id + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
  }
}

}  // namespace bluefog
