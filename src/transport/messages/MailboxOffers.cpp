// Large messages that their receivers read where they lie, in the memory of their senders.
#include <sys/mman.h>

#include <atomic>

#include "transport/messages/Mailbox.hpp"

namespace bluefog {
namespace {

// Measured with a third-level cache of 32 MiB: what all ranks of a host write, and read next, stays
// there up to so much.
constexpr size_t kStaysShared = size_t{8} << 20;

}  // namespace

// Between cores that share no cache, a reader waits for each line that lies in its writer's.
Stores Mailbox::storesForOffer(size_t bytes) const {
  const size_t all = bytes * segments_.hosts().here().size();
  return all <= kStaysShared ? store_policy_.preferred() : Stores::kStreamed;
}

const std::byte* Mailbox::offered(const ReceiveState& message) {
  if (!message.offer || !isStillOffered(message)) {
    return nullptr;
  }
  const Mapping* heap = heapOf(message.source);
  if (heap == nullptr) {
    return nullptr;
  }
  if (*message.offer > heap->size() || message.bytes > heap->size() - *message.offer) {
    throw damaged(members_, message.source, "a message");
  }
  return heap->data() + *message.offer;
}

const Mapping* Mailbox::heapOf(int peer) {
  std::optional<Mapping>& heap = lane(peer).heap;
  if (!heap) {
    heap = segments_.with(peer).map(Segment::Area::kHeap, peer, PROT_READ);
    if (heap->size() > 0) {
      ::madvise(heap->data(), heap->size(), MADV_DONTFORK);
    }
  }
  return heap->size() > 0 ? &*heap : nullptr;
}

// As a reader of a sequence lock: what a sender has changed, it has said before.
bool Mailbox::isStillOffered(const ReceiveState& message) const {
  std::atomic_thread_fence(std::memory_order_acquire);
  const Lane& from = lanes_[static_cast<size_t>(message.source)];
  return from.their_offers_over->load(std::memory_order_relaxed) <= message.id;
}

void Mailbox::noteTaken(ReceiveState& message) {
  message.stage = ReceiveState::Stage::kComplete;
  lane(message.source).coming.erase(message.id);
  answer(message.source, {.id = message.id, .kind = ControlMessage::kFinished});
}

void Mailbox::endOffers(int destination, uint64_t id) {
  std::atomic<uint64_t>& over = *lane(destination).offers_over;
  if (over.load(std::memory_order_relaxed) <= id) {
    over.store(id + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
  }
}

}  // namespace bluefog
