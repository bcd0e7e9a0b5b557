#include "transport/messages/Lines.hpp"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <utility>

namespace bluefog {

void Lines::add(std::shared_ptr<Inbound> message) {
  auto& line = lines_[keyOf(message->line, message->source)];
  line.push_back({added_++, std::move(message)});
}

std::shared_ptr<Inbound> Lines::take(int source, const Line& wanted) {
  auto first = lines_.end();
  const auto consider = [&](auto line) {
    if (first == lines_.end() || line->second.front().number < first->second.front().number) {
      first = line;
    }
  };
  if (source == kAnySource) {
    const auto end = lines_.upper_bound(keyOf(wanted, std::numeric_limits<int>::max()));
    for (auto line = lines_.lower_bound(keyOf(wanted, kAnySource)); line != end; ++line) {
      consider(line);
    }
  } else {
    for (const int goes_with : {source, kAnySource}) {
      if (const auto line = lines_.find(keyOf(wanted, goes_with)); line != lines_.end()) {
        consider(line);
      }
    }
  }
  if (first == lines_.end()) {
    return nullptr;
  }
  return takeFront(first);
}

const Inbound* Lines::from(int source) const {
  const auto found = std::find_if(lines_.begin(), lines_.end(), [&](const auto& line) {
    return std::get<int>(line.first) == source;
  });
  return found == lines_.end() ? nullptr : found->second.front().message.get();
}

std::vector<std::shared_ptr<Inbound>> Lines::upTo(const Counter& counter, uint64_t number,
                                                  int source) const {
  std::vector<std::shared_ptr<Inbound>> messages;
  const auto end = lines_.upper_bound({counter.line, counter.tag, source, number});
  // Those of number 0 are of no call.
  for (auto line = lines_.lower_bound({counter.line, counter.tag, source, 1}); line != end;
       ++line) {
    addAll(line->second, messages);
  }
  return messages;
}

bool Lines::hasLater(const Line& wanted, int source) const {
  const auto next = lines_.upper_bound(keyOf(wanted, source));
  const Line last{wanted.kind, wanted.tag, std::numeric_limits<uint64_t>::max()};
  return next != lines_.end() && next->first <= keyOf(last, source);
}

void Lines::addAll(const std::list<Place>& line, std::vector<std::shared_ptr<Inbound>>& to) {
  std::transform(line.begin(), line.end(), std::back_inserter(to),
                 [](const Place& place) { return place.message; });
}

std::vector<std::shared_ptr<Inbound>> Lines::ofCallsUpTo(uint64_t number, int source) const {
  std::vector<std::shared_ptr<Inbound>> messages;
  for (const auto& [key, line] : lines_) {
    const Line& first = line.front().message->line;
    if (std::get<int>(key) == source && first.number > 0 && first.number <= number) {
      addAll(line, messages);
    }
  }
  return messages;
}

void Lines::remove(const Inbound& message) {
  const auto line = lines_.find(keyOf(message.line, message.source));
  if (line == lines_.end()) {
    return;
  }
  line->second.remove_if([&](const Place& place) { return place.message.get() == &message; });
  if (line->second.empty()) {
    lines_.erase(line);
  }
}

std::shared_ptr<Inbound> Lines::takeFront(Map::iterator line) {
  std::shared_ptr<Inbound> message = std::move(line->second.front().message);
  line->second.pop_front();
  if (line->second.empty()) {
    lines_.erase(line);
  }
  return message;
}

}  // namespace bluefog
