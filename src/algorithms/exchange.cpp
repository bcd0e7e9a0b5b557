#include <algorithm>
#include <cstring>

#include "algorithms/Algorithms.hpp"
#include "core/Reduce.hpp"

namespace bluefog {
namespace {

// What a rank publishes, cut into frames: the size of its parcel for each rank, then the parcels,
// the next rank's first, so that the ranks do not all read from the same one. Its own is not there.
class Stream {
 public:
  Stream(int rank, int size) : rank_(rank), sizes_(static_cast<size_t>(size), 0) {}

  size_t tableBytes() const {
    const size_t bytes = sizes_.size() * sizeof(uint64_t);
    return (bytes + RingShape::kLine - 1) / RingShape::kLine * RingShape::kLine;
  }
  std::vector<uint64_t>& sizes() { return sizes_; }
  // When the sizes are known.
  void layOut() {
    begins_.assign(sizes_.size(), 0);
    end_ = tableBytes();
    for (size_t k = 1; k < sizes_.size(); ++k) {
      const size_t to = (static_cast<size_t>(rank_) + k) % sizes_.size();
      begins_[to] = end_;
      end_ += sizes_[to];
    }
  }
  size_t begin(int rank) const { return begins_[static_cast<size_t>(rank)]; }
  size_t end() const { return end_; }

 private:
  int rank_;
  std::vector<uint64_t> sizes_;
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

class Exchange {
 public:
  Exchange(Board& board, const Op& op, std::vector<Parcel> parcels, std::vector<Place> places)
      : board_(board),
        op_(op),
        parcels_(std::move(parcels)),
        places_(std::move(places)),
        own_(board.rank(), board.size()),
        keeps_(keptBytes()) {
    size_t arriving = 0;
    for (size_t rank = 0; rank < parcels_.size(); ++rank) {
      own_.sizes()[rank] = parcels_[rank].bytes;
      arriving += places_[rank].bytes;
      arrivals_.push_back({Stream(static_cast<int>(rank), board.size()), 0});
    }
    own_.layOut();
    stores_ = storesFor(arriving);
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
  size_t keptBytes() const {
    const auto self = static_cast<size_t>(board_.rank());
    return places_[self].data == parcels_[self].data ? 0 : places_[self].bytes;
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

  // A piece of its own parcel.
  void keep() {
    const auto self = static_cast<size_t>(board_.rank());
    const size_t bytes = std::min(board_.payload(), keeps_ - kept_);
    copyBytes(places_[self].data + kept_, parcels_[self].data + kept_, bytes, stores_);
    kept_ += bytes;
  }

  void give() {
    std::byte* slot = board_.slot();
    const size_t length = std::min(board_.payload(), own_.end() - given_);
    const bool has_table = given_ == 0;
    takers_.clear();
    if (has_table) {
      std::memcpy(slot, own_.sizes().data(), own_.sizes().size() * sizeof(uint64_t));
    }
    for (int rank = 0; rank < board_.size(); ++rank) {
      const Parcel& parcel = parcels_[static_cast<size_t>(rank)];
      const Overlap part(given_, length, own_.begin(rank), parcel.bytes);
      if (rank == board_.rank()) {
        continue;
      }
      if (part.bytes > 0) {
        board_.write(slot + part.in_frame, parcel.data + part.in_parcel, part.bytes);
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
      std::vector<uint64_t>& sizes = arrival.stream.sizes();
      const size_t bytes = sizes.size() * sizeof(uint64_t);
      std::memcpy(sizes.data(), board_.from(peer, bytes), bytes);
      requireExpected(peer, sizes[static_cast<size_t>(board_.rank())]);
      arrival.stream.layOut();
    }
    const size_t length = std::min(board_.payload(), arrival.stream.end() - arrival.taken);
    const Place& place = places_[static_cast<size_t>(peer)];
    const Overlap part(arrival.taken, length, arrival.stream.begin(board_.rank()), place.bytes);
    if (part.bytes > 0) {
      copyBytes(place.data + part.in_parcel, board_.from(peer, part.bytes, part.in_frame),
                part.bytes, stores_);
    }
    const size_t frames = 1 + foreignFrames(arrival, arrival.taken + length, place.bytes);
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

  void requireExpected(int peer, size_t bytes) const {
    const size_t expected = places_[static_cast<size_t>(peer)].bytes;
    if (bytes != expected) {
      throw sizesDiffer(board_.members(), op_, peer, bytes, expected);
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
  Stores stores_;
};

}  // namespace

Script exchange(Board& board, const Op& op, std::vector<Parcel> parcels,
                std::vector<Place> places) {
  Exchange exchange(board, op, std::move(parcels), std::move(places));
  while (!exchange.done()) {
    co_await Until([&] { return exchange.move(); }, [&] { return exchange.missing(); },
                   [&] { return exchange.late(); });
  }
}

}  // namespace bluefog
