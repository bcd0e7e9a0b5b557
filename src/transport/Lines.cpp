#include "transport/Lines.hpp"

#include <initializer_list>
#include <limits>
#include <utility>

namespace bluefog {

void Lines::add(std::shared_ptr<Inbound> message) {
  auto& line = lines_[{message->kind, message->tag, message->source}];
  line.push_back({added_++, std::move(message)});
}

std::shared_ptr<Inbound> Lines::take(int source, OpKind kind, int64_t tag) {
  auto first = lines_.end();
  const auto consider = [&](auto line) {
    if (first == lines_.end() || line->second.front().number < first->second.front().number) {
      first = line;
    }
  };
  if (source == kAnySource) {
    const auto end = lines_.upper_bound({kind, tag, std::numeric_limits<int>::max()});
    for (auto line = lines_.lower_bound({kind, tag, kAnySource}); line != end; ++line) {
      consider(line);
    }
  } else {
    for (const int goes_with : {source, kAnySource}) {
      if (const auto line = lines_.find({kind, tag, goes_with}); line != lines_.end()) {
        consider(line);
      }
    }
  }
  if (first == lines_.end()) {
    return nullptr;
  }
  std::shared_ptr<Inbound> message = std::move(first->second.front().message);
  first->second.pop_front();
  if (first->second.empty()) {
    lines_.erase(first);
  }
  return message;
}

}  // namespace bluefog
