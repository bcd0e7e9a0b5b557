#include "transport/messages/MatchQueue.hpp"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <utility>

namespace bluefog {

void MatchQueue::add(Message message) {
  auto& queue = queues_[keyOf(message->key, message->source)];
  queue.push_back({added_++, std::move(message)});
}

MatchQueue::Message MatchQueue::take(int source, const MatchKey& wanted) {
  auto first = queues_.end();
  const auto consider = [&](auto queue) {
    if (first == queues_.end() || queue->second.front().number < first->second.front().number) {
      first = queue;
    }
  };
  if (source == kAnySource) {
    const auto end = queues_.upper_bound(keyOf(wanted, std::numeric_limits<int>::max()));
    for (auto queue = queues_.lower_bound(keyOf(wanted, kAnySource)); queue != end; ++queue) {
      consider(queue);
    }
  } else {
    for (const int goes_with : {source, kAnySource}) {
      if (const auto queue = queues_.find(keyOf(wanted, goes_with)); queue != queues_.end()) {
        consider(queue);
      }
    }
  }
  if (first == queues_.end()) {
    return nullptr;
  }
  return takeFront(first);
}

const ReceiveState* MatchQueue::from(int source) const {
  const auto found = std::find_if(queues_.begin(), queues_.end(), [&](const auto& queue) {
    return std::get<int>(queue.first) == source;
  });
  return found == queues_.end() ? nullptr : found->second.front().message.get();
}

MatchQueue::Messages MatchQueue::upTo(const Counter& counter, uint64_t number, int source) const {
  Messages messages;
  const auto end = queues_.upper_bound({counter.kind, counter.tag, source, number});
  // Messages with the number 0 belong to no call.
  for (auto queue = queues_.lower_bound({counter.kind, counter.tag, source, 1}); queue != end;
       ++queue) {
    addAll(queue->second, messages);
  }
  return messages;
}

bool MatchQueue::hasLater(const MatchKey& wanted, int source) const {
  const auto next = queues_.upper_bound(keyOf(wanted, source));
  const MatchKey last{wanted.kind, wanted.tag, std::numeric_limits<uint64_t>::max()};
  return next != queues_.end() && next->first <= keyOf(last, source);
}

void MatchQueue::addAll(const std::list<Numbered>& queue, Messages& to) {
  std::transform(queue.begin(), queue.end(), std::back_inserter(to),
                 [](const Numbered& place) { return place.message; });
}

MatchQueue::Messages MatchQueue::ofCallsUpTo(uint64_t number, int source) const {
  Messages messages;
  for (const auto& [at, queue] : queues_) {
    const MatchKey& first = queue.front().message->key;
    if (std::get<int>(at) == source && first.number > 0 && first.number <= number) {
      addAll(queue, messages);
    }
  }
  return messages;
}

void MatchQueue::remove(const ReceiveState& message) {
  const auto queue = queues_.find(keyOf(message.key, message.source));
  if (queue == queues_.end()) {
    return;
  }
  queue->second.remove_if([&](const Numbered& place) { return place.message.get() == &message; });
  if (queue->second.empty()) {
    queues_.erase(queue);
  }
}

MatchQueue::Message MatchQueue::takeFront(Map::iterator queue) {
  Message message = std::move(queue->second.front().message);
  queue->second.pop_front();
  if (queue->second.empty()) {
    queues_.erase(queue);
  }
  return message;
}

}  // namespace bluefog
