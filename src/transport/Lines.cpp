#include "transport/Lines.hpp"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <utility>

namespace bluefog {

void Lines::add(std::shared_ptr<Inbound> message) {
  auto& line = lines_[{message->line, message->tag, message->source}];
  line.push_back({added_++, std::move(message)});
}

std::shared_ptr<Inbound> Lines::take(int source, OpKind line_of, int64_t tag) {
  auto first = lines_.end();
  const auto consider = [&](auto line) {
    if (first == lines_.end() || line->second.front().number < first->second.front().number) {
      first = line;
    }
  };
  if (source == kAnySource) {
    const auto end = lines_.upper_bound({line_of, tag, std::numeric_limits<int>::max()});
    for (auto line = lines_.lower_bound({line_of, tag, kAnySource}); line != end; ++line) {
      consider(line);
    }
  } else {
    for (const int goes_with : {source, kAnySource}) {
      if (const auto line = lines_.find({line_of, tag, goes_with}); line != lines_.end()) {
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

std::vector<uint64_t> Lines::receiversFrom(int source) const {
  std::vector<uint64_t> receivers;
  for (const auto& [key, line] : lines_) {
    if (std::get<int>(key) == source) {
      std::transform(line.begin(), line.end(), std::back_inserter(receivers),
                     [](const Place& place) { return place.message->receiver; });
    }
  }
  return receivers;
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
