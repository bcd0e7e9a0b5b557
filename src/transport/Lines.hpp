#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "transport/Segment.hpp"

namespace bluefog {

constexpr int kAnySource = -1;

// One message that this rank expects, or that came before it was expected.
struct Inbound {
  enum class State {
    kExpected,
    kHere,       // a small one: its bytes are in `payload`
    kAnnounced,  // a large one: its sender waits for an answer
    kStreaming,
    kComplete
  };

  uint64_t receiver = 0;         // sequence number of the operation that expects it
  std::optional<uint64_t> call;  // its number among the calls, if it is one
  int source = kAnySource;
  OpKind line = OpKind::kPointToPoint;  // see lineOf
  int64_t tag = 0;
  State state = State::kExpected;
  std::optional<GivenUp> abandoned;   // why nobody waits any more: what comes is thrown away
  std::optional<GivenUp> broken_off;  // why not all of it will come
  bool has_second = false;            // of its operation, which nothing expects yet
  bool is_unsure = false;             // see Frame
  uint64_t id = 0;
  double weight = 1.0;
  Signature signature;  // what its sender called
  size_t bytes = 0;     // all of it
  uint16_t sent = 0;    // when: see quartersNow
  // Where it lies in its sender's heap, until Mailbox::isStillOffered() says otherwise.
  std::optional<uint64_t> offer;
  std::vector<std::byte> payload;
  // Where the bytes of a large message go. Null: the script takes the frames from the lane.
  std::byte* sink = nullptr;
  uint64_t received = 0;
};

// Messages that wait to be matched.
class Lines {
 public:
  bool isEmpty() const { return lines_.empty(); }
  void add(std::shared_ptr<Inbound> message);
  // The first one added to that line that goes with this source, taken out; null if there is none.
  std::shared_ptr<Inbound> take(int source, OpKind line, int64_t tag);
  // One from that source, which stays; null if there is none.
  const Inbound* from(int source) const;
  // Of all from that source.
  std::vector<uint64_t> receiversFrom(int source) const;

 private:
  using Key = std::tuple<OpKind, int64_t, int>;  // line, tag, source
  struct Place {
    uint64_t number;
    std::shared_ptr<Inbound> message;
  };

  using Map = std::map<Key, std::list<Place>>;

  std::shared_ptr<Inbound> takeFront(Map::iterator line);

  Map lines_;
  uint64_t added_ = 0;
};

}  // namespace bluefog
