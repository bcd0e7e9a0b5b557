#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "transport/messages/ReceiveState.hpp"

namespace bluefog {

// A MatchQueue holds messages that wait to be matched, in the order in which they were added: the
// posted queue holds receives whose messages have not come, the unexpected queue holds messages for
// which no receive was posted. It shares the messages with the tasks that receive them.
//
// Thread safety: only the thread that drives the engine may use it.
class MatchQueue {
 public:
  using Message = std::shared_ptr<ReceiveState>;
  using Messages = std::vector<Message>;

  bool isEmpty() const { return queues_.empty(); }
  void add(Message message);
  // Removes and returns the first message added with this key whose source matches; kAnySource
  // matches every source, on either side. Returns null where there is none.
  Message take(int source, const MatchKey& key);
  void remove(const ReceiveState& message);
  // Returns one message from that source, which stays here; null where there is none.
  const ReceiveState* from(int source) const;
  // Returns the messages from that source that belong to calls by the counter up to this number.
  // They stay here.
  Messages upTo(const Counter& counter, uint64_t number, int source) const;
  // Returns whether a message from that source has the key's kind and tag, but a later call's
  // number.
  bool hasLater(const MatchKey& key, int source) const;
  // Returns the messages from that source that belong to calls up to this number, by any counter,
  // and those of their gradients. They stay here.
  Messages ofCallsUpTo(uint64_t number, int source) const;

 private:
  using Key = std::tuple<OpKind, int64_t, int, uint64_t>;  // kind, tag, source, number
  static Key keyOf(const MatchKey& key, int source) {
    return {key.kind, key.tag, source, key.number};
  }
  struct Numbered {
    uint64_t number;
    Message message;
  };

  using Map = std::map<Key, std::list<Numbered>>;

  static void addAll(const std::list<Numbered>& queue, Messages& to);

  Message takeFront(Map::iterator queue);

  Map queues_;
  uint64_t added_ = 0;
};

}  // namespace bluefog
