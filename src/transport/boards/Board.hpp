#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "transport/memory/PendingWakeups.hpp"
#include "transport/memory/Ring.hpp"
#include "transport/memory/Segments.hpp"
#include "transport/operations/Failure.hpp"
#include "transport/operations/Op.hpp"
#include "transport/operations/Task.hpp"
#include "transport/tuning/StorePolicy.hpp"

namespace bluefog {

// How the collectives of a group move bytes: each rank writes frames to its own ring, and every
// other rank reads every frame that it gets, in order. All ranks run the same schedule, so a
// frame's place in the ring says what it is; its header is there to be checked. Used by the driving
// thread alone.
class Board {
 public:
  // A group has Segment::kBoards of them, each in an order of its own.
  Board(const Segments& segments, int which, const Membership& members, PendingWakeups& wakeups);

  // What of a frame one peer makes use of.
  struct Cut {
    size_t offset;
    size_t bytes;
  };
  // None: it does without that frame, and one elsewhere does not get it.
  using MaybeCut = std::optional<Cut>;
  static MaybeCut headIf(bool is_wanted) { return is_wanted ? MaybeCut(Cut{0, 0}) : std::nullopt; }

  // Fulfilled when this rank's ring has a free slot.
  class Room final : public Awaitable {
   public:
    explicit Room(Board& board) : board_(board) {}
    bool ready() override { return board_.writer_.room(); }
    std::vector<int> missing() const override { return board_.slowReaders(); }
    void await_resume() {}

   private:
    Board& board_;
  };

  // Fulfilled when the next frame of each peer in [first, last) is there. Throws a mismatch as soon
  // as one is there that belongs to another call than `op`.
  class Arrivals final : public Awaitable {
   public:
    Arrivals(Board& board, const Op& op, int first, int last)
        : board_(board), op_(op), last_(last), next_(first) {}
    bool ready() override;
    std::vector<int> missing() const override;
    void await_resume() {}

   private:
    void check(int peer, const Frame& frame) const;

    Board& board_;
    const Op& op_;
    int last_;
    int next_;  // peers before this one have arrived
  };

  Room room() { return Room(*this); }
  bool hasRoom() { return writer_.room(); }
  // Whether every peer's next frame is there; throws a mismatch as Arrivals does.
  bool hasArrivals(const Op& op) { return arrivals(op).ready(); }
  bool hasArrivals(const Op& op, const std::vector<int>& peers);
  bool hasArrival(const Op& op, int peer) { return arrival(op, peer).ready(); }
  // Whom this rank waits for where it can go on neither with arrivals nor with room.
  std::vector<int> lacking(const Op& op);
  // Those of the peers whose next frame is not there.
  std::vector<int> missing(const std::vector<int>& peers);
  Arrivals arrivals(const Op& op) { return {*this, op, 0, size()}; }
  Arrivals arrival(const Op& op, int peer) { return {*this, op, peer, peer + 1}; }

  // The free slot that publish() sends off: `bytes` of it, which `takers` peers make use of.
  std::byte* slot() { return payloadOf(writer_.slot()); }
  // Copies to that place of it what peers will read.
  void write(std::byte* place, const std::byte* from, size_t bytes) {
    store_policy_.write(place, from, bytes);
  }
  void publish(const Op& op, size_t bytes, int takers);
  // For the ranks of this host, all of it.
  void publishHere(const Op& op, size_t bytes) {
    publishCut(
        op, bytes, [](int) { return MaybeCut(); }, static_cast<int>(hosts_.here().size()) - 1);
  }
  // Each peer makes use of a part of its own, all of them together of `bytes`; or so many takers of
  // all of it.
  template <class CutOf>
  void publishCut(const Op& op, size_t bytes, const CutOf& cutOf, int takers = 1) {
    cut(cutOf);
    sendOff(op, bytes, takers);
    sent_.fetch_add(bytes * static_cast<size_t>(takers), std::memory_order_relaxed);
    wakeups_.addPeers(members_.rank);
  }
  // The same, but the others than `takers` have skipped this frame, or will: they are not woken.
  template <class CutOf>
  void publishFor(const Op& op, size_t bytes, const std::vector<int>& takers, const CutOf& cutOf) {
    cut(cutOf);
    sendOff(op, bytes, 1);
    sent_.fetch_add(bytes, std::memory_order_relaxed);
    for (int taker : takers) {
      wakeups_.add(taker);
    }
  }
  // Of the frame of that number, which has not been read by all: what a peer elsewhere is sent.
  MaybeCut cutFor(uint64_t frame, int peer) const {
    return cuts_[frame % cuts_.size()][static_cast<size_t>(peer)];
  }

  // The payload of a peer's frame that has arrived, from there on: so many bytes will be read.
  const std::byte* from(int peer, size_t bytes, size_t offset = 0) {
    const Frame* frame = reader(peer).front();
    store_policy_.observe(frame->written, payloadOf(frame) + offset, bytes);
    return payloadOf(frame) + offset;
  }
  // The factor of that peer's Op.
  double factorOf(int peer) { return reader(peer).front()->weight; }
  // Frees the frame of every peer, or of those, or so many of one, also such as are still to come.
  void pop();
  void pop(const std::vector<int>& peers);
  void skip(int peer, size_t frames);

  const Membership& members() const { return members_; }
  int rank() const { return members_.rank; }
  int size() const { return members_.size; }
  const HostMap& hosts() const { return hosts_; }
  bool spansHosts() const { return !hosts_.elsewhere().empty(); }
  size_t payload() const { return writer_.shape().payload; }
  // Of the ranks that share a core, at most, between being written and being read by all.
  size_t bytesUnderWay() const { return sharers_ * writer_.shape().slots * payload(); }
  // Bytes handed to peers so far. Readable from any thread.
  uint64_t bytesSent() const { return sent_.load(std::memory_order_relaxed); }

 private:
  void sendOff(const Op& op, size_t bytes, int readers);
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
