#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "transport/boards/Board.hpp"
#include "transport/hosts/RemoteTransport.hpp"
#include "transport/memory/Ring.hpp"
#include "transport/memory/Segment.hpp"

namespace bluefog {

// Flows are what a Bridge carries to and from one peer. Each flow has one stream of the transport:
// an outflow sends what lies in a ring, and an inflow writes what has come into the ring's image.
// The name "image" stands for memory of this process alone that is laid out as a segment, in which
// a peer on another host has its end of a ring.
// Thread safety of all flows: only the driving thread uses them.

// A Transfer is a message that was given to the transport and whose memory must still be kept.
struct Transfer {
  RemoteTransport::Request request;  // null for a frame that the peer does not use
  std::vector<std::byte> copy;       // empty if the message is sent from where it was written
};
using Transfers = std::deque<Transfer>;

// A RequestList collects the requests of flows that are given up, for RemoteTransport::detach().
using RequestList = std::vector<RemoteTransport::Request>;
template <class UnderWay>
void collect(const UnderWay& under_way, RequestList& requests) {
  for (const auto& each : under_way) {
    if (each.request != nullptr) {
      requests.push_back(each.request);
    }
  }
}

// A FrameOutflow sends the frames of a ring to the host of one of the ring's readers. It reads the
// ring in that reader's place. The ring's memory must outlive it.
class FrameOutflow {
 public:
  // Sends all of each frame, or the part that `board` says the peer uses.
  FrameOutflow(RingReader ring, int to, int stream, const Board* board = nullptr)
      : ring_(ring), to_(to), stream_(stream), board_(board) {}

  // Sends what was published, and frees slots whose transfers have ended. Returns whether something
  // moved.
  bool move(RemoteTransport& transport);
  bool isIdle() { return under_way_.empty() && ring_.front() == nullptr; }
  void giveUp(RequestList& requests) const { collect(under_way_, requests); }

 private:
  bool mayGoUnseen(size_t bytes);
  Transfer sendOff(RemoteTransport& transport, const Frame& frame, uint64_t number);

  RingReader ring_;
  int to_;
  int stream_;
  const Board* board_;
  uint64_t small_n_ = 0;  // small frames so far, for mayGoUnseen()
  Transfers under_way_;
};

// A FrameInflow is the other end of a FrameOutflow. It writes the frames that have come into the
// image of the ring, as the ring's writer would.
class FrameInflow {
 public:
  explicit FrameInflow(RingWriter ring, bool is_board) : ring_(ring), is_board_(is_board) {}

  void add(const RemoteTransport::Incoming& incoming) { waiting_.push_back(incoming); }
  // Receives as many frames as the ring has room for, and publishes them. Returns whether something
  // moved. Throws std::runtime_error if the peer has sent anything but a frame.
  bool move(RemoteTransport& transport);
  bool isIdle() const { return (waiting_.empty() || is_cut_) && coming_.empty(); }
  // Receives also what nobody wants any more, because its sender keeps the memory until then.
  void giveUp(RemoteTransport& transport, RequestList& requests);

 private:
  struct FrameInFlight {
    RemoteTransport::Request request;
    size_t bytes;
  };

  void place(Frame& frame, size_t bytes) const;

  RingWriter ring_;
  bool is_board_;
  std::deque<RemoteTransport::Incoming> waiting_;
  std::deque<FrameInFlight> coming_;
  std::deque<std::vector<std::byte>> unwanted_;
  bool is_cut_ = false;  // the sender is dead: nothing comes after the transfer that has failed
};

// A ControlOutflow sends the control messages in a ring, all that are there in one message.
class ControlOutflow {
 public:
  ControlOutflow(ControlRing& ring, int to, int stream) : ring_(&ring), to_(to), stream_(stream) {}

  bool move(RemoteTransport& transport);
  bool isIdle() const;
  void giveUp(RequestList& requests) const { collect(under_way_, requests); }

 private:
  ControlRing* ring_;
  int to_;
  int stream_;
  Transfers under_way_;
};

// A MessageInflow receives whole messages in the order in which they were sent.
class MessageInflow {
 public:
  using Bytes = std::vector<std::byte>;

  void add(const RemoteTransport::Incoming& incoming) { waiting_.push_back(incoming); }
  bool move(RemoteTransport& transport);
  bool isIdle() const { return waiting_.empty() && coming_.empty() && here_.empty(); }
  void giveUp(RequestList& requests) const { collect(coming_, requests); }
  // Returns whether take() has a message to return.
  bool hasAny() const { return !here_.empty(); }
  Bytes take();

 private:
  struct MessageInFlight {
    RemoteTransport::Request request;
    Bytes bytes;
  };

  std::deque<RemoteTransport::Incoming> waiting_;
  std::deque<MessageInFlight> coming_;
  std::deque<Bytes> here_;
  bool is_cut_ = false;  // as in FrameInflow
};

// A ControlInflow writes the control messages that have come into their ring.
class ControlInflow {
 public:
  explicit ControlInflow(ControlRing& ring) : ring_(&ring) {}

  void add(const RemoteTransport::Incoming& incoming) { messages_.add(incoming); }
  // Returns whether something moved. Throws std::runtime_error if the peer has sent anything but
  // control messages.
  bool move(RemoteTransport& transport);
  bool isIdle() const { return messages_.isIdle() && left_.empty(); }
  void giveUp(RequestList& requests) const { messages_.giveUp(requests); }

 private:
  ControlRing* ring_;
  MessageInflow messages_;
  std::deque<ControlMessage> left_;  // control messages that the ring has no room for yet
};

// A TextOutflow sends short texts from one bridge to another.
class TextOutflow {
 public:
  TextOutflow(int to, int stream) : to_(to), stream_(stream) {}

  void send(RemoteTransport& transport, const std::string& text);
  bool move(RemoteTransport& transport);
  bool isIdle() const { return under_way_.empty(); }
  void giveUp(RequestList& requests) const { collect(under_way_, requests); }

 private:
  int to_;
  int stream_;
  Transfers under_way_;
};

}  // namespace bluefog
