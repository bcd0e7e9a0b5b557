#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "transport/memory/PendingWakeups.hpp"
#include "transport/memory/Ring.hpp"
#include "transport/memory/Segments.hpp"
#include "transport/operations/CollectiveOp.hpp"
#include "transport/operations/Failure.hpp"
#include "transport/operations/Task.hpp"
#include "transport/tuning/StorePolicy.hpp"

namespace bluefog {

// A Board moves the bytes of a group's collectives. It is named after a notice board, whose
// contents all others read. Each rank writes frames to its own ring, and every other rank reads
// every frame of that ring in order. All ranks run the same schedule, so a frame's place in the
// ring says what it is, and its header is only there to be checked. The segments, the membership
// and the wakeups must outlive it.
// Thread safety: only the driving thread uses it, except for bytesSent().
class Board {
 public:
  // `which` is below Segment::kBoards: a group has that many boards, and the frames of each have an
  // order of their own.
  Board(const Segments& segments, int which, const Membership& members, PendingWakeups& wakeups);

  // A Cut is the part of a frame's payload, in bytes, that one peer uses.
  struct Cut {
    size_t offset;
    size_t bytes;
  };
  // A peer without a cut does not use the frame, and is not sent it if it is on another host.
  using MaybeCut = std::optional<Cut>;
  // Returns an empty cut, which sends the header alone, or none.
  static MaybeCut headIf(bool is_wanted) { return is_wanted ? MaybeCut(Cut{0, 0}) : std::nullopt; }

  // Room is fulfilled when this rank's ring has a free slot.
  class Room final : public Awaitable {
   public:
    explicit Room(Board& board) : board_(board) {}
    bool ready() override { return board_.writer_.room(); }
    std::vector<int> missing() const override { return board_.slowReaders(); }
    void await_resume() {}

   private:
    Board& board_;
  };

  // Arrivals is fulfilled when the next frame of each peer in [first, last) has arrived. It throws
  // a mismatch as soon as a frame arrives that does not belong to the call `op`.
  class Arrivals final : public Awaitable {
   public:
    Arrivals(Board& board, const CollectiveOp& op, int first, int last)
        : board_(board), op_(op), last_(last), next_(first) {}
    bool ready() override;
    std::vector<int> missing() const override;
    void await_resume() {}

   private:
    void check(int peer, const Frame& frame) const;

    Board& board_;
    const CollectiveOp& op_;
    int last_;
    int next_;  // peers before this one have arrived
  };

  Room room() { return Room(*this); }
  bool hasRoom() { return writer_.room(); }
  // Returns whether the next frame of every peer, or of these, has arrived; throws a mismatch as
  // Arrivals does.
  bool hasArrivals(const CollectiveOp& op) { return arrivals(op).ready(); }
  bool hasArrivals(const CollectiveOp& op, const std::vector<int>& peers);
  bool hasArrival(const CollectiveOp& op, int peer) { return arrival(op, peer).ready(); }
  // Returns the ranks that an operation waits for which can continue neither with arrivals nor with
  // room.
  std::vector<int> lacking(const CollectiveOp& op);
  // Returns those of the peers whose next frame has not arrived.
  std::vector<int> missing(const std::vector<int>& peers);
  Arrivals arrivals(const CollectiveOp& op) { return {*this, op, 0, size()}; }
  Arrivals arrival(const CollectiveOp& op, int peer) { return {*this, op, peer, peer + 1}; }

  // Returns the payload of the slot that the next publish() sends. There must be room.
  std::byte* slot() { return payloadOf(writer_.slot()); }
  // Copies bytes that peers will read to a place in that payload.
  void write(std::byte* place, const std::byte* from, size_t bytes) {
    store_policy_.write(place, from, bytes);
  }
  // Publishes the first `bytes` of the slot's payload, which `takers` peers read.
  void publish(const CollectiveOp& op, size_t bytes, int takers);
  // Publishes the same for the ranks of this host alone, all of which read it.
  void publishHere(const CollectiveOp& op, size_t bytes) {
    publishCut(
        op, bytes, [](int) { return MaybeCut(); }, static_cast<int>(hosts_.here().size()) - 1);
  }
  // Publishes a frame of which a peer on another host is sent the part that `cutOf` returns for it.
  // With one taker, the parts that peers read add up to `bytes`; otherwise `takers` peers read all
  // of it.
  template <class CutOf>
  void publishCut(const CollectiveOp& op, size_t bytes, const CutOf& cutOf, int takers = 1) {
    cut(cutOf);
    sendOff(op, bytes, takers);
    sent_.fetch_add(bytes * static_cast<size_t>(takers), std::memory_order_relaxed);
    wakeups_.addPeers(members_.rank);
  }
  // Publishes such a frame, and wakes only the `takers`: all other peers skip this frame.
  template <class CutOf>
  void publishFor(const CollectiveOp& op, size_t bytes, const std::vector<int>& takers,
                  const CutOf& cutOf) {
    cut(cutOf);
    sendOff(op, bytes, 1);
    sent_.fetch_add(bytes, std::memory_order_relaxed);
    for (int taker : takers) {
      wakeups_.add(taker);
    }
  }
  // Returns the part of the frame of that number that a peer on another host is sent. The frame
  // must not have been read by all yet.
  MaybeCut cutFor(uint64_t frame, int peer) const {
    return cuts_[frame % cuts_.size()][static_cast<size_t>(peer)];
  }

  // Returns the payload of a peer's frame that has arrived, starting at `offset`. The caller reads
  // `bytes` from there.
  const std::byte* from(int peer, size_t bytes, size_t offset = 0) {
    const Frame* frame = reader(peer).front();
    store_policy_.observe(frame->written, payloadOf(frame) + offset, bytes);
    return payloadOf(frame) + offset;
  }
  // Returns the factor of that peer's Op, from its frame that has arrived.
  double factorOf(int peer) { return reader(peer).front()->weight; }
  // pop() frees one frame of every peer, or of these peers. skip() frees that many frames of one
  // peer, which may include frames that it has not written yet.
  void pop();
  void pop(const std::vector<int>& peers);
  void skip(int peer, size_t frames);

  const Membership& members() const { return members_; }
  int rank() const { return members_.rank; }
  int size() const { return members_.size; }
  const HostMap& hosts() const { return hosts_; }
  bool spansHosts() const { return !hosts_.elsewhere().empty(); }
  size_t payload() const { return writer_.shape().payload; }
  // Returns how many bytes the ranks that share a core can have, at most, in frames that are
  // written and not yet read by all.
  size_t bytesUnderWay() const { return sharers_ * writer_.shape().slots * payload(); }
  // Returns the bytes handed to peers so far. Any thread may call it.
  uint64_t bytesSent() const { return sent_.load(std::memory_order_relaxed); }

 private:
  void sendOff(const CollectiveOp& op, size_t bytes, int readers);
  template <class CutOf>
  void cut(const CutOf& cutOf) {
    for (const int peer : hosts_.elsewhere()) {
      cuts_[writer_.published() % cuts_.size()][static_cast<size_t>(peer)] = cutOf(peer);
    }
  }
  RingReader& reader(int peer) { return readers_[Segment::boardReader(rank(), peer)]; }
  std::vector<int> slowReaders() const;

  const Membership& members_;
  PendingWakeups& wakeups_;
  size_t sharers_;
  RingWriter writer_;
  std::vector<RingReader> readers_;
  const HostMap& hosts_;
  std::vector<std::vector<MaybeCut>> cuts_;  // by slot and peer
  StorePolicy store_policy_;
  std::atomic<uint64_t> sent_{0};
};

}  // namespace bluefog
