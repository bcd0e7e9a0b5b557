#include "transport/hosts/Bridge.hpp"

#include <algorithm>
#include <stdexcept>
#include <thread>
#include <utility>

#include "transport/hosts/Flows.hpp"

namespace bluefog {
namespace {

// Each kind of traffic between two ranks has a stream of its own. kTexts carries what bridges tell
// each other.
enum BridgeStream { kBoards = 0, kLane = Segment::kBoards, kControl, kTexts };
static_assert(kTexts < RemoteTransport::kStreams);

// The first byte of a text says what it is. kGroupFailure stands for the group's failure.
constexpr char kHello = 'h';
constexpr char kGoodbye = 'b';
constexpr char kGroupFailure = 'r';

}  // namespace

// A RemotePeer holds all streams to and from one rank on another host.
class Bridge::RemotePeer {
 public:
  RemotePeer(const Segments& segments, int self, int peer, const std::vector<const Board*>& boards)
      : rank(peer),
        control_out(segments.with(peer).controlRing(peer, self), peer, kControl),
        control_in(segments.with(peer).controlRing(self, peer)),
        texts_out(peer, kTexts) {
    const Segment& own = segments.with(peer);
    const RingShape shape = own.boardShape();
    for (int which = 0; which < Segment::kBoards; ++which) {
      outflows.emplace_back(
          RingReader(segments.shared().board(which, self), shape, Segment::boardReader(self, peer)),
          peer, kBoards + which, boards[static_cast<size_t>(which)]);
      inflows.emplace_back(
          RingWriter(own.board(which, peer), shape, Segment::boardReader(peer, self)), true);
    }
    outflows.emplace_back(RingReader(own.lane(self, peer), Segment::laneShape(), 0), peer, kLane);
    inflows.emplace_back(RingWriter(own.lane(peer, self), Segment::laneShape()), false);
  }

  bool send(RemoteTransport& transport) {
    bool moved = texts_out.move(transport);
    for (FrameOutflow& flow : outflows) {
      moved |= flow.move(transport);
    }
    return control_out.move(transport) || moved;
  }
  bool receive(RemoteTransport& transport) {
    bool moved = texts_in.move(transport);
    for (FrameInflow& flow : inflows) {
      moved |= flow.move(transport);
    }
    return control_in.move(transport) || moved;
  }
  void add(const RemoteTransport::Incoming& incoming) {
    if (incoming.stream < kControl) {
      inflows[static_cast<size_t>(incoming.stream)].add(incoming);
    } else if (incoming.stream == kControl) {
      control_in.add(incoming);
    } else {
      texts_in.add(incoming);
    }
  }
  bool hasSentAll() {
    return control_out.isIdle() && texts_out.isIdle() &&
           std::all_of(outflows.begin(), outflows.end(),
                       [](FrameOutflow& flow) { return flow.isIdle(); });
  }
  bool hasReceivedAll() const {
    return control_in.isIdle() && texts_in.isIdle() &&
           std::all_of(inflows.begin(), inflows.end(),
                       [](const FrameInflow& flow) { return flow.isIdle(); });
  }

  void giveUp(RemoteTransport& transport, RequestList& requests) {
    for (const FrameOutflow& flow : outflows) {
      flow.giveUp(requests);
    }
    for (FrameInflow& flow : inflows) {
      flow.giveUp(transport, requests);
    }
    control_out.giveUp(requests);
    control_in.giveUp(requests);
    texts_out.giveUp(requests);
    texts_in.giveUp(requests);
  }

  const int rank;
  std::vector<FrameOutflow> outflows;
  std::vector<FrameInflow> inflows;
  ControlOutflow control_out;
  ControlInflow control_in;
  TextOutflow texts_out;
  MessageInflow texts_in;
  bool says_goodbye = false;
  bool is_dead = false;
  bool is_gone = false;
  bool is_damaged = false;  // it has sent what cannot be, and nothing more is received from it
};

Bridge::Bridge(std::shared_ptr<const Segments> segments, const Membership& members,
               const std::vector<const Board*>& boards, Links& links,
               std::unique_ptr<RemoteTransport> transport)
    : segments_(std::move(segments)),
      members_(members),
      links_(links),
      transport_(std::move(transport)),
      peers_(static_cast<size_t>(members.size)) {
  for (const int peer : segments_->hosts().elsewhere()) {
    auto& made = peers_[static_cast<size_t>(peer)];
    made = std::make_unique<RemotePeer>(*segments_, members.rank, peer, boards);
    made->texts_out.send(*transport_, kHello + transport_->greeting());
  }
}

Bridge::~Bridge() {
  struct Remains {
    std::shared_ptr<const Segments> segments;
    Peers peers;
  };
  const auto remains = std::make_shared<Remains>(Remains{segments_, std::move(peers_)});
  RequestList requests;
  for (const auto& peer : remains->peers) {
    if (peer) {
      peer->giveUp(*transport_, requests);
    }
  }
  transport_->detach(requests, remains);
}

bool Bridge::receive() {
  bool moved = false;
  for (const int rank : transport_->takeDead()) {
    if (const auto& peer = peers_[static_cast<size_t>(rank)]) {
      peer->is_dead = true;
    }
  }
  transport_->poll();
  while (const std::optional<RemoteTransport::Incoming> incoming = transport_->next()) {
    if (const auto& peer = peers_[static_cast<size_t>(incoming->from)]) {
      peer->add(*incoming);
      moved = true;
    }
  }
  for (const auto& peer : peers_) {
    if (peer) {  // the dead included: what they sent before may still come
      moved |= receiveFrom(*peer);
    }
  }
  return moved;
}

bool Bridge::receiveFrom(RemotePeer& peer) {
  if (peer.is_damaged) {
    return false;
  }
  bool moved = false;
  try {
    moved = peer.receive(*transport_);
  } catch (const std::runtime_error& error) {
    peer.is_damaged = true;
    throw damaged(members_, peer.rank, error.what());
  }
  while (peer.texts_in.hasAny()) {
    const MessageInflow::Bytes bytes = peer.texts_in.take();
    hear(peer, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  return noteIfGone(peer, moved) || moved;
}

// A departure is noted only after all that the peer sent before has been received, as far as the
// rings have room for it. `moves` says whether something from this peer has just moved.
bool Bridge::noteIfGone(RemotePeer& peer, bool moves) {
  const bool has_left = peer.says_goodbye && peer.hasReceivedAll();
  const bool has_died = peer.is_dead && (peer.hasReceivedAll() || !moves);
  if (peer.is_gone || !(has_left || has_died)) {
    return false;
  }
  peer.is_gone = true;
  links_.noteElsewhere(peer.rank,
                       peer.says_goodbye ? Departure::How::kLeft : Departure::How::kDied);
  return true;
}

void Bridge::hear(RemotePeer& peer, const std::string& text) {
  if (text[0] == kHello) {
    transport_->hearGreeting(text.substr(1));
  } else if (text[0] == kGoodbye) {
    peer.says_goodbye = true;
  } else if (text[0] == kGroupFailure) {
    publishFirst(segments_->shared().groupFailure(),
                 asSeenHere(GroupFailure::decode(text.substr(1)), peer.rank));
  }
}

bool Bridge::livesHere(int global_rank) {
  const std::vector<Departure>& departures = links_.look();
  const std::vector<int>& here = segments_->hosts().here();
  return std::any_of(here.begin(), here.end(), [&](int rank) {
    return members_.global(rank) == global_rank &&
           std::none_of(departures.begin(), departures.end(),
                        [rank](const Departure& gone) { return gone.rank == rank; });
  });
}

// If ranks are said to have died that live on this host, then this host was cut off for so long
// that others gave it up. This rank then blames the one that says so, since all it knows is that
// this one does without it.
GroupFailure Bridge::asSeenHere(GroupFailure group_failure, int from) {
  std::vector<int>& blamed = group_failure.failure.ranks;
  if (group_failure.failure.cause == Cause::kPeerFailed &&
      std::any_of(blamed.begin(), blamed.end(), [this](int rank) { return livesHere(rank); })) {
    blamed = {members_.global(from)};
    group_failure.failure.reason =
        rankList(blamed) + " could not reach this rank's host for a while, and has given it up";
  }
  return group_failure;
}

bool Bridge::send() {
  bool moved = false;
  for (const auto& peer : peers_) {
    if (peer) {
      moved |= peer->send(*transport_);
    }
  }
  return moved;
}

void Bridge::tell(const GroupFailure& group_failure) {
  for (const auto& peer : peers_) {
    if (peer) {
      peer->texts_out.send(*transport_, kGroupFailure + group_failure.encode());
    }
  }
}

bool Bridge::hasSentAll() {
  const bool is_handed_over = std::all_of(peers_.begin(), peers_.end(), [](const auto& peer) {
    return !peer || peer->is_gone || peer->is_damaged || peer->hasSentAll();
  });
  return is_handed_over && transport_->hasLeftHost();
}

void Bridge::leave(Deadline limit) {
  // The first round sends what was written before, the second one the goodbye.
  for (const bool says_goodbye : {false, true}) {
    for (const auto& peer : peers_) {
      if (peer && !peer->is_gone && says_goodbye) {
        peer->texts_out.send(*transport_, std::string(1, kGoodbye));
      }
    }
    while (!hasSentAll() && !limit.passed()) {
      const bool sent = send();
      if (!receive() && !sent) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    }
  }
}

}  // namespace bluefog
