#include <algorithm>
#include <cstring>
#include <span>

#include "algorithms/Algorithms.hpp"
#include "core/Reduce.hpp"

namespace bluefog {
namespace {

// What a rank says of another one.
struct Sizes {
  uint64_t sent = 0;
  uint64_t expected = 0;
};

// What a rank publishes, cut into frames: for each rank the sizes, then the parcels, the next
// rank's first, so that the ranks do not all read from the same one. Its own is not there.
class Stream {
 public:
  Stream(int rank, int size) : rank_(rank), table_(static_cast<size_t>(size)) {}

  std::span<std::byte> tableBytes() { return std::as_writable_bytes(std::span(table_)); }
  Sizes& table(int rank) { return table_[static_cast<size_t>(rank)]; }
  // When the sizes are known.
  void layOut() {
    begins_.assign(table_.size(), 0);
    end_ = (tableBytes().size() + RingShape::kLine - 1) / RingShape::kLine * RingShape::kLine;
    for (size_t k = 1; k < table_.size(); ++k) {
      const size_t to = (static_cast<size_t>(rank_) + k) % table_.size();
      begins_[to] = end_;
      end_ += table_[to].sent;
    }
  }
  size_t begin(int rank) const { return begins_[static_cast<size_t>(rank)]; }
  size_t end() const { return end_; }

 private:
  int rank_;
  std::vector<Sizes> table_;
  std::vector<size_t> begins_;
  size_t end_ = 0;
};

// Where [at, at + length) of a stream and a parcel in it meet.
struct Overlap {
  size_t in_frame;
  size_t in_parcel;
  size_t bytes;

  Overlap(size_t at, size_t length, size_t begin, size_t parcel) {
    const size_t from = std::max(at, begin);
    const size_t to = std::min(at + length, begin + parcel);
    bytes = from < to ? to - from : 0;
    in_frame = from - at;
    in_parcel = from - begin;
  }
};

class Traffic {
 public:
  Traffic(Board& board, const Op& op, std::vector<Parcel> parcels, std::vector<Place> places)
      : board_(board),
        op_(op),
        parcels_(std::move(parcels)),
        places_(std::move(places)),
        own_(board.rank(), board.size()),
        keeps_(keptBytes()) {
    for (int rank = 0; rank < board.size(); ++rank) {
      own_.table(rank) = {parcel(rank).bytes, place(rank).bytes};
      arrivals_.push_back({Stream(rank, board.size()), 0});
    }
    own_.layOut();
  }

  bool done() const {
    for (int peer = 0; peer < board_.size(); ++peer) {
      if (!isFinished(peer)) {
        return false;
      }
    }
    return given_ >= own_.end() && kept_ >= keeps_;
  }
  // Takes before it gives: who waits for room must not hold up those who wait for theirs. What
  // nobody waits for is done when nothing else can be.
  bool move() {
    bool moved = false;
    for (int peer = 0; peer < board_.size(); ++peer) {
      while (!isFinished(peer) && board_.arrival(op_, peer).ready()) {
        take(peer);
        moved = true;
      }
    }
    if (given_ < own_.end() && board_.hasRoom()) {
      give();
      moved = true;
    }
    if (!moved && kept_ < keeps_) {
      keep();
      moved = true;
    }
    return moved;
  }
  std::vector<int> missing() const {
    std::vector<int> ranks = silent([](const Arrival&) { return true; });
    if (given_ < own_.end()) {
      const std::vector<int> slow = board_.room().missing();
      ranks.insert(ranks.end(), slow.begin(), slow.end());
    }
    return ranks;
  }
  // Who has begun may only lack room that another one does not make.
  std::vector<int> late() const {
    const std::vector<int> absent =
        silent([](const Arrival& arrival) { return arrival.taken == 0; });
    return absent.empty() ? missing() : absent;
  }

 private:
  const Parcel& parcel(int rank) const { return parcels_[static_cast<size_t>(rank)]; }
  const Place& place(int rank) const { return places_[static_cast<size_t>(rank)]; }
  size_t keptBytes() const {
    const int self = board_.rank();
    return place(self).data == parcel(self).data ? 0 : place(self).bytes;
  }

  struct Arrival {
    Stream stream;
    size_t taken;  // bytes of it
  };

  // A stream is at least its table.
  bool isFinished(int peer) const {
    const Arrival& arrival = arrivals_[static_cast<size_t>(peer)];
    return peer == board_.rank() || (arrival.taken > 0 && arrival.taken >= arrival.stream.end());
  }

  // Those whose next frame is not there.
  template <class Predicate>
  std::vector<int> silent(Predicate counts) const {
    std::vector<int> ranks;
    for (int peer = 0; peer < board_.size(); ++peer) {
      if (!isFinished(peer) && counts(arrivals_[static_cast<size_t>(peer)]) &&
          !board_.arrival(op_, peer).missing().empty()) {
        ranks.push_back(peer);
      }
    }
    return ranks;
  }

  // A piece of its own parcel. No peer has touched that memory: memcpy is faster there.
  void keep() {
    const size_t bytes = std::min(board_.payload(), keeps_ - kept_);
    std::memcpy(place(board_.rank()).data + kept_, parcel(board_.rank()).data + kept_, bytes);
    kept_ += bytes;
  }

  void give() {
    std::byte* slot = board_.slot();
    const size_t length = std::min(board_.payload(), own_.end() - given_);
    const bool has_table = given_ == 0;
    takers_.clear();
    if (has_table) {
      std::memcpy(slot, own_.tableBytes().data(), own_.tableBytes().size());
    }
    for (int rank = 0; rank < board_.size(); ++rank) {
      const Overlap part(given_, length, own_.begin(rank), parcel(rank).bytes);
      if (rank == board_.rank()) {
        continue;
      }
      if (part.bytes > 0) {
        board_.write(slot + part.in_frame, parcel(rank).data + part.in_parcel, part.bytes);
      }
      if (has_table || part.bytes > 0) {
        takers_.push_back(rank);
      }
    }
    board_.publishFor(op_, length, takers_);
    given_ += length;
  }

  void take(int peer) {
    Arrival& arrival = arrivals_[static_cast<size_t>(peer)];
    if (arrival.taken == 0) {
      const std::span<std::byte> table = arrival.stream.tableBytes();
      std::memcpy(table.data(), board_.from(peer, table.size()), table.size());
      requireAgreed(peer, arrival.stream.table(board_.rank()));
      arrival.stream.layOut();
    }
    const size_t length = std::min(board_.payload(), arrival.stream.end() - arrival.taken);
    const size_t expected = place(peer).bytes;
    const Overlap part(arrival.taken, length, arrival.stream.begin(board_.rank()), expected);
    if (part.bytes > 0) {
      copyBytes(place(peer).data + part.in_parcel, board_.from(peer, part.bytes, part.in_frame),
                part.bytes);
    }
    const size_t frames = 1 + foreignFrames(arrival, arrival.taken + length, expected);
    board_.skip(peer, frames);
    arrival.taken = std::min(arrival.taken + frames * board_.payload(), arrival.stream.end());
  }
  // How many frames from there on have nothing for this rank before one that has, or the end.
  size_t foreignFrames(const Arrival& arrival, size_t at, size_t expected) const {
    const size_t begin = arrival.stream.begin(board_.rank());
    const bool comes = expected > 0 && at < begin + expected;
    const size_t next =
        comes ? std::max(at, begin / board_.payload() * board_.payload()) : arrival.stream.end();
    return (next - at + board_.payload() - 1) / board_.payload();
  }

  // Both sides look: either may be through before the other one has begun.
  void requireAgreed(int peer, const Sizes& theirs) const {
    const int self = board_.rank();
    if (theirs.sent != place(peer).bytes) {
      throw sizesDiffer(board_.members(), op_, peer, self, theirs.sent, place(peer).bytes);
    }
    if (theirs.expected != parcel(peer).bytes) {
      throw sizesDiffer(board_.members(), op_, self, peer, parcel(peer).bytes, theirs.expected);
    }
  }

  Board& board_;
  const Op& op_;
  std::vector<Parcel> parcels_;
  std::vector<Place> places_;
  Stream own_;
  size_t given_ = 0;  // bytes of it
  std::vector<int> takers_;
  size_t keeps_;
  size_t kept_ = 0;  // bytes of it
  std::vector<Arrival> arrivals_;
};

}  // namespace

Script exchange(Board& board, const Op& op, std::vector<Parcel> parcels,
                std::vector<Place> places) {
  Traffic traffic(board, op, std::move(parcels), std::move(places));
  while (!traffic.done()) {
    co_await Until([&] { return traffic.move(); }, [&] { return traffic.missing(); },
                   [&] { return traffic.late(); });
  }
}

}  // namespace bluefog
