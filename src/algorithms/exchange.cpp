#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>

#include "algorithms/Algorithms.hpp"
#include "core/Pages.hpp"
#include "core/Reduce.hpp"

namespace bluefog {
namespace {

// The Sizes are the bytes that a rank sends to another one, and those that it expects from it.
struct Sizes {
  uint64_t sent = 0;
  uint64_t expected = 0;
};

// A FrameLayout says what is where in the frames that a rank publishes. The first frame begins with
// the sizes for each rank. Every frame has the next piece of each block that has not ended, and all
// pieces are as long as fits: so no rank's block stands behind another's. The rank's own block is
// not there.
class FrameLayout {
 public:
  FrameLayout(int rank, int size, size_t payload)
      : rank_(rank), payload_(payload), table_(static_cast<size_t>(size)) {}

  std::span<std::byte> tableBytes() { return std::as_writable_bytes(std::span(table_)); }
  Sizes& table(int rank) { return table_[static_cast<size_t>(rank)]; }

  // Returns whether a sound rank may have written these sizes.
  bool isSound() const {
    constexpr uint64_t kMost = uint64_t{1} << 48;
    return std::all_of(table_.begin(), table_.end(),
                       [](const Sizes& sizes) { return sizes.sent <= kMost; });
  }
  // begin() goes to the first frame, once the sizes are known; next() goes to the next frame.
  void begin() {
    first_place_ = inLines(tableBytes().size());
    piece_ = pieceOf(unendedAt(0), payload_ - first_place_);
  }
  void next() {
    at_ += piece_;
    first_place_ = 0;
    piece_ = pieceOf(unendedAt(at_), payload_);
  }
  bool isAtTable() const { return first_place_ > 0; }
  bool hasEnded() const { return !isAtTable() && piece_ == 0; }
  // Returns whether this frame has the last piece of that rank's block.
  bool isLastFor(int rank) const { return leftAt(at_ + piece_, rank) == 0; }
  // Returns how many frames come after this one.
  size_t framesAfter() const {
    size_t frames = 0;
    size_t at = at_ + piece_;
    // All frames are alike until the next block ends.
    for (Unended left = unendedAt(at); left.blocks > 0; left = unendedAt(at)) {
      const size_t piece = pieceOf(left, payload_);
      const size_t alike = (left.shortest + piece - 1) / piece;
      frames += alike;
      at += alike * piece;
    }
    return frames;
  }

  struct Piece {
    size_t in_frame;
    size_t in_block;
    size_t bytes;
  };
  // Calls visit(rank, piece) for each piece of this frame.
  template <class Visit>
  void forEachPiece(Visit visit) const {
    size_t in_frame = first_place_;
    for (int rank = 0; rank < size(); ++rank) {
      if (const size_t bytes = std::min(leftAt(at_, rank), piece_); bytes > 0) {
        visit(rank, Piece{in_frame, at_, bytes});
        in_frame += piece_;
      }
    }
  }

 private:
  struct Unended {
    size_t blocks = 0;
    size_t shortest = std::numeric_limits<size_t>::max();  // bytes left of one
    size_t longest = 0;
  };

  static size_t inLines(size_t bytes) { return roundUp(bytes, RingShape::kLine); }
  // Returns the length of the pieces in that room. A frame has room for a cache line of each rank,
  // of which there are kMostRanks at most.
  static size_t pieceOf(const Unended& left, size_t room) {
    return left.blocks == 0 ? 0
                            : std::min(room / left.blocks / RingShape::kLine * RingShape::kLine,
                                       inLines(left.longest));
  }
  int size() const { return static_cast<int>(table_.size()); }
  size_t leftAt(size_t at, int rank) const {
    const size_t sent = table_[static_cast<size_t>(rank)].sent;
    return rank == rank_ || sent <= at ? 0 : sent - at;
  }
  Unended unendedAt(size_t at) const {
    Unended unended;
    for (int rank = 0; rank < size(); ++rank) {
      if (const size_t left = leftAt(at, rank); left > 0) {
        ++unended.blocks;
        unended.shortest = std::min(unended.shortest, left);
        unended.longest = std::max(unended.longest, left);
      }
    }
    return unended;
  }

  int rank_;
  size_t payload_;
  std::vector<Sizes> table_;
  size_t at_ = 0;           // where this frame's pieces begin in their blocks, in bytes
  size_t piece_ = 0;        // bytes from one piece to the next
  size_t first_place_ = 0;  // where the first piece is in the frame, in bytes
};

// A Traffic is the state of an exchange(): what this rank has given and taken of the blocks.
class Traffic {
 public:
  Traffic(Board& board, const CollectiveOp& op, std::vector<SendBlock> blocks,
          std::vector<RecvBlock> places)
      : board_(board),
        op_(op),
        blocks_(std::move(blocks)),
        places_(std::move(places)),
        own_(board.rank(), board.size(), board.payload()),
        keeps_(keptBytes()) {
    for (int rank = 0; rank < board.size(); ++rank) {
      own_.table(rank) = {block(rank).bytes, place(rank).bytes};
      if (rank > 0) {
        peers_.push_back((board.rank() + rank) %
                         board.size());  // each rank begins with another one
      }
      arrivals_.push_back({FrameLayout(rank, board.size(), board.payload())});
    }
    own_.begin();
  }

  bool done() const {
    const bool has_all = std::all_of(peers_.begin(), peers_.end(),
                                     [this](int peer) { return arrival(peer).is_complete; });
    return has_all && own_.hasEnded() && !hasOwn();
  }
  // Moves what can be moved. It takes before it gives, because a rank that waits for room must not
  // hold up ranks that wait for the room that it takes up. Returns whether anything moved.
  bool move() {
    bool moved = false;
    for (const int peer : peers_) {
      while (!arrival(peer).is_complete && board_.arrival(op_, peer).ready()) {
        take(peer);
        moved = true;
      }
    }
    if (!own_.hasEnded() && board_.hasRoom()) {
      give();
      moved = true;
    }
    return moved;
  }
  // hasOwn() returns whether this rank still has to copy a piece of its own block, for which nobody
  // waits. keep() copies it. No peer has touched that memory, where memcpy is faster.
  bool hasOwn() const { return kept_ < keeps_; }
  void keep() {
    const int self = board_.rank();
    const size_t bytes = std::min(board_.payload(), keeps_ - kept_);
    std::memcpy(place(self).data + kept_, block(self).data + kept_, bytes);
    kept_ += bytes;
  }
  std::vector<int> missing() const {
    std::vector<int> ranks = silent([](const PeerArrival&) { return true; });
    if (!own_.hasEnded()) {
      const std::vector<int> slow = board_.room().missing();
      ranks.insert(ranks.end(), slow.begin(), slow.end());
    }
    return ranks;
  }
  // A rank that has begun may only lack room that another one does not make.
  std::vector<int> late() const {
    const std::vector<int> absent =
        silent([](const PeerArrival& arrival) { return !arrival.has_begun; });
    return absent.empty() ? missing() : absent;
  }

 private:
  const SendBlock& block(int rank) const { return blocks_[static_cast<size_t>(rank)]; }
  const RecvBlock& place(int rank) const { return places_[static_cast<size_t>(rank)]; }
  size_t keptBytes() const {
    const int self = board_.rank();
    return place(self).data == block(self).data ? 0 : place(self).bytes;
  }

  struct PeerArrival {
    FrameLayout stream;
    bool has_begun = false;
    bool is_complete = false;
  };
  PeerArrival& arrival(int peer) { return arrivals_[static_cast<size_t>(peer)]; }
  const PeerArrival& arrival(int peer) const { return arrivals_[static_cast<size_t>(peer)]; }

  // Returns the peers that count and whose next frame has not come.
  template <class Predicate>
  std::vector<int> silent(Predicate counts) const {
    std::vector<int> ranks;
    for (const int peer : peers_) {
      if (!arrival(peer).is_complete && counts(arrival(peer)) &&
          !board_.arrival(op_, peer).missing().empty()) {
        ranks.push_back(peer);
      }
    }
    return ranks;
  }

  void give() {
    std::byte* slot = board_.slot();
    size_t given = 0;
    takers_.clear();
    cuts_.assign(static_cast<size_t>(board_.size()), {0, 0});
    if (own_.isAtTable()) {
      given = own_.tableBytes().size();
      cuts_.assign(cuts_.size(), {0, given});
      std::memcpy(slot, own_.tableBytes().data(), given);
      takers_ = peers_;
    }
    own_.forEachPiece([&](int rank, const FrameLayout::Piece& piece) {
      board_.write(slot + piece.in_frame, block(rank).data + piece.in_block, piece.bytes);
      given += piece.bytes;
      Board::Cut& cut = cuts_[static_cast<size_t>(rank)];
      if (own_.isAtTable()) {
        cut.bytes = piece.in_frame + piece.bytes;
      } else {
        takers_.push_back(rank);
        cut = {piece.in_frame, piece.bytes};
      }
    });
    board_.publishFor(op_, given, takers_,
                      [this](int peer) { return cuts_[static_cast<size_t>(peer)]; });
    own_.next();
  }

  void take(int peer) {
    PeerArrival& arrival = this->arrival(peer);
    FrameLayout& stream = arrival.stream;
    if (!arrival.has_begun) {
      arrival.has_begun = true;
      const std::span<std::byte> table = stream.tableBytes();
      std::memcpy(table.data(), board_.from(peer, table.size()), table.size());
      if (!stream.isSound()) {
        throw damaged(board_.members(), peer, "its table of sizes");
      }
      requireAgreed(peer, stream.table(board_.rank()));
      stream.begin();
    }
    stream.forEachPiece([&](int rank, const FrameLayout::Piece& piece) {
      if (rank == board_.rank()) {
        copyBytes(place(peer).data + piece.in_block, board_.from(peer, piece.bytes, piece.in_frame),
                  piece.bytes);
      }
    });
    arrival.is_complete = stream.isLastFor(board_.rank());
    if (arrival.is_complete) {
      board_.skip(peer, 1 + stream.framesAfter());
    } else {
      board_.skip(peer, 1);
      stream.next();
    }
  }

  // Throws where the sizes of the two ranks do not agree. Both sides look, because either may be
  // done before the other one has begun.
  void requireAgreed(int peer, const Sizes& theirs) const {
    const int self = board_.rank();
    if (theirs.sent != place(peer).bytes) {
      throw sizesDiffer(board_.members(), op_, peer, self, theirs.sent, place(peer).bytes);
    }
    if (theirs.expected != block(peer).bytes) {
      throw sizesDiffer(board_.members(), op_, self, peer, block(peer).bytes, theirs.expected);
    }
  }

  Board& board_;
  const CollectiveOp& op_;
  std::vector<SendBlock> blocks_;
  std::vector<RecvBlock> places_;
  FrameLayout own_;
  std::vector<int> peers_;
  std::vector<int> takers_;
  std::vector<Board::Cut> cuts_;
  size_t keeps_;
  size_t kept_ = 0;  // bytes of its own block that are copied
  std::vector<PeerArrival> arrivals_;
};

}  // namespace

Task exchange(Board& board, const CollectiveOp& op, std::vector<SendBlock> blocks,
              std::vector<RecvBlock> places) {
  Traffic traffic(board, op, std::move(blocks), std::move(places));
  while (!traffic.done()) {
    if (!traffic.hasOwn()) {
      co_await WaitUntil([&] { return traffic.move(); }, [&] { return traffic.missing(); },
                         [&] { return traffic.late(); });
    } else if (!traffic.move()) {
      co_await Yield();  // peers are woken for what was moved before
      traffic.keep();
    }
  }
}

}  // namespace bluefog
