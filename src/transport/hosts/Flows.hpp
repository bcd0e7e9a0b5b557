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

// What a Bridge carries to or from one peer, one stream each. Used by the driving thread alone.

// What has been given to the transport and still lies here.
struct Transfer {
  RemoteTransport::Request request;  // null for a frame that nobody there makes use of
  std::vector<std::byte> copy;       // unless it is sent from where it was written
};
using Transfers = std::deque<Transfer>;

// Those of a flow that is given up.
using RequestList = std::vector<RemoteTransport::Request>;
template <class UnderWay>
void collect(const UnderWay& under_way, RequestList& requests) {
  for (const auto& each : under_way) {
    if (each.request != nullptr) {
      requests.push_back(each.request);
    }
  }
}

// The frames of a ring, to its image on the host of one of its readers.
class FrameOutflow {
 public:
  // Whole, or what `board` says of each.
  FrameOutflow(RingReader ring, int to, int stream, const Board* board = nullptr)
      : ring_(ring), to_(to), stream_(stream), board_(board) {}

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
  uint64_t small_n_ = 0;  // small frames so far
  Transfers under_way_;
};

// The other end: the image.
class FrameInflow {
 public:
  explicit FrameInflow(RingWriter ring, bool is_board) : ring_(ring), is_board_(is_board) {}

  void add(const RemoteTransport::Incoming& incoming) { waiting_.push_back(incoming); }
  // Throws std::runtime_error where the peer has sent something else than a frame.
  bool move(RemoteTransport& transport);
  bool isIdle() const { return (waiting_.empty() || is_cut_) && coming_.empty(); }
  // Takes also what nobody wants any more: its sender keeps it until then.
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
  bool is_cut_ = false;  // its sender is dead: nothing comes after what has failed
};

// The answers in a ring, several in a message.
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

// Whole messages, in the order sent.
class MessageInflow {
 public:
  using Bytes = std::vector<std::byte>;

  void add(const RemoteTransport::Incoming& incoming) { waiting_.push_back(incoming); }
  bool move(RemoteTransport& transport);
  bool isIdle() const { return waiting_.empty() && coming_.empty() && here_.empty(); }
  void giveUp(RequestList& requests) const { collect(coming_, requests); }
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
  bool is_cut_ = false;  // as FrameInflow's
};

class ControlInflow {
 public:
  explicit ControlInflow(ControlRing& ring) : ring_(&ring) {}

  void add(const RemoteTransport::Incoming& incoming) { messages_.add(incoming); }
  // Throws std::runtime_error where the peer has sent something else than answers.
  bool move(RemoteTransport& transport);
  bool isIdle() const { return messages_.isIdle() && left_.empty(); }
  void giveUp(RequestList& requests) const { messages_.giveUp(requests); }

 private:
  ControlRing* ring_;
  MessageInflow messages_;
  std::deque<ControlMessage> left_;  // for which there is no room yet
};

// Short texts.
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
