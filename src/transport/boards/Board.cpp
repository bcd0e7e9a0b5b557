#include "transport/boards/Board.hpp"

#include <algorithm>
#include <iterator>

#include "core/Cores.hpp"

namespace bluefog {
namespace {

size_t ranksPerCore(size_t ranks) {
  const auto cores = static_cast<size_t>(std::max(Cores::usable().count(), 1));
  return (ranks + cores - 1) / cores;
}

}  // namespace

Board::Board(const Segments& segments, int which, const Membership& members,
             PendingWakeups& wakeups)
    : members_(members),
      wakeups_(wakeups),
      sharers_(ranksPerCore(segments.hosts().here().size())),
      writer_(segments.shared().board(which, members.rank), segments.shared().boardShape()),
      hosts_(segments.hosts()),
      cuts_(writer_.shape().slots) {
  if (spansHosts()) {
    for (auto& of_slot : cuts_) {
      of_slot.resize(static_cast<size_t>(members.size));
    }
  }
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank()) {
      readers_.emplace_back(segments.with(peer).board(which, peer), writer_.shape(),
                            Segment::boardReader(peer, rank()));
    }
  }
}

bool Board::Arrivals::ready() {
  for (int peer = next_; peer < last_; ++peer) {
    const Frame* frame = peer == board_.rank() ? nullptr : board_.reader(peer).front();
    if (frame != nullptr) {
      check(peer, *frame);
    }
    if (peer == next_ && (frame != nullptr || peer == board_.rank())) {
      ++next_;
    }
  }
  return next_ == last_;
}

bool Board::hasArrivals(const CollectiveOp& op, const std::vector<int>& peers) {
  return std::all_of(peers.begin(), peers.end(),
                     [&](int peer) { return peer == rank() || hasArrival(op, peer); });
}

std::vector<int> Board::lacking(const CollectiveOp& op) {
  std::vector<int> ranks = arrivals(op).missing();
  const std::vector<int> slow = slowReaders();
  ranks.insert(ranks.end(), slow.begin(), slow.end());
  return ranks;
}

std::vector<int> Board::missing(const std::vector<int>& peers) {
  std::vector<int> ranks;
  std::copy_if(peers.begin(), peers.end(), std::back_inserter(ranks),
               [this](int peer) { return peer != rank() && reader(peer).front() == nullptr; });
  return ranks;
}

std::vector<int> Board::Arrivals::missing() const {
  std::vector<int> ranks;
  for (int peer = next_; peer < last_; ++peer) {
    if (peer != board_.rank() && board_.reader(peer).front() == nullptr) {
      ranks.push_back(peer);
    }
  }
  return ranks;
}

void Board::Arrivals::check(int peer, const Frame& frame) const {
  if (!(frame.signature == op_.signature) || frame.id != op_.sequence) {
    throw mismatch(board_.members_, op_, peer, frame.signature);
  }
}

void Board::publish(const CollectiveOp& op, size_t bytes, int takers) {
  publishCut(op, bytes, [bytes](int) { return Cut{0, bytes}; }, takers);
}

void Board::sendOff(const CollectiveOp& op, size_t bytes, int readers) {
  Frame& frame = *writer_.slot();
  frame = Frame();
  frame.type = FrameType::kCollective;
  frame.written = store_policy_.sendOff(readers);
  frame.bytes = static_cast<uint32_t>(bytes);
  frame.id = op.sequence;
  frame.weight = op.factor;
  frame.signature = op.signature;
  writer_.publish();
}

void Board::pop() {
  for (RingReader& reader : readers_) {
    reader.pop();
  }
  wakeups_.addPeers(members_.rank);
}

void Board::pop(const std::vector<int>& peers) {
  for (const int peer : peers) {
    if (peer != rank()) {
      skip(peer, 1);
    }
  }
}

void Board::skip(int peer, size_t frames) {
  reader(peer).skip(frames);
  wakeups_.add(peer);
}

std::vector<int> Board::slowReaders() const {
  std::vector<int> ranks;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank() && writer_.waitsFor(Segment::boardReader(rank(), peer))) {
      ranks.push_back(peer);
    }
  }
  return ranks;
}

}  // namespace bluefog
