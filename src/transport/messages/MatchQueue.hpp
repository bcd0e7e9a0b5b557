#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "transport/memory/Segment.hpp"

namespace bluefog {

constexpr int kAnySource = -1;

// One message that this rank expects, or that came before it was expected.
struct ReceiveState {
  enum class Stage {
    kExpected,
    kHere,       // a small one: its bytes are in `payload`
    kAnnounced,  // a large one: its sender waits for an answer
    kStreaming,
    kComplete
  };

  uint64_t receiver = 0;  // sequence number of the operation that expects it
  int source = kAnySource;
  MatchKey key;
  Stage stage = Stage::kExpected;
  // Its source has made that call, or a later one, without sending this.
  bool is_passed = false;
  std::optional<CancelReason> abandoned;   // why nobody waits any more: what comes is thrown away
  std::optional<CancelReason> broken_off;  // why not all of it will come
  bool has_second = false;                 // of its operation, which nothing expects yet
  uint64_t id = 0;
  double weight = 1.0;
  Signature signature;  // what its sender called
  size_t bytes = 0;     // all of it
  // Where it lies in its sender's heap, until Mailbox::isStillOffered() says otherwise.
  std::optional<uint64_t> offer;
  std::vector<std::byte> payload;
  // Where the bytes of a large message go. Null: the task takes the frames from the lane.
  std::byte* sink = nullptr;
  uint64_t received = 0;
};

// Messages that wait to be matched.
class MatchQueue {
 public:
  bool isEmpty() const { return queues_.empty(); }
  void add(std::shared_ptr<ReceiveState> message);
  // The first one added to that key that goes with this source, taken out; null if there is none.
  std::shared_ptr<ReceiveState> take(int source, const MatchKey& key);
  void remove(const ReceiveState& message);
  // One from that source, which stays; null if there is none.
  const ReceiveState* from(int source) const;
  // Those of calls by that counter, of that number and earlier ones, from that source; they stay.
  std::vector<std::shared_ptr<ReceiveState>> upTo(const Counter& counter, uint64_t number,
                                                  int source) const;
  // Whether there is one of that queue from that source, but for a later call.
  bool hasLater(const MatchKey& key, int source) const;
  // The same, by any counter, and gradients.
  std::vector<std::shared_ptr<ReceiveState>> ofCallsUpTo(uint64_t number, int source) const;

 private:
  using Key = std::tuple<OpKind, int64_t, int, uint64_t>;  // kind, tag, source, number
  static Key keyOf(const MatchKey& key, int source) {
    return {key.kind, key.tag, source, key.number};
  }
  struct Numbered {
    uint64_t number;
    std::shared_ptr<ReceiveState> message;
  };

  using Map = std::map<Key, std::list<Numbered>>;

  static void addAll(const std::list<Numbered>& key,
                     std::vector<std::shared_ptr<ReceiveState>>& to);

  std::shared_ptr<ReceiveState> takeFront(Map::iterator key);

  Map queues_;
  uint64_t added_ = 0;
};

}  // namespace bluefog
