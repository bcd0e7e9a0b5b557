#include "transport/Lines.hpp"

#include <algorithm>

namespace bluefog {

void Lines::add(std::shared_ptr<Inbound> message) {
  lines_[{message->kind, message->tag}].push_back(std::move(message));
}

std::shared_ptr<Inbound> Lines::take(int source, OpKind kind, int64_t tag) {
  const auto line = lines_.find({kind, tag});
  if (line == lines_.end()) {
    return nullptr;
  }
  const auto found = std::find_if(line->second.begin(), line->second.end(), [&](const auto& it) {
    return source == kAnySource || it->source == kAnySource || it->source == source;
  });
  if (found == line->second.end()) {
    return nullptr;
  }
  std::shared_ptr<Inbound> message = *found;
  line->second.erase(found);
  if (line->second.empty()) {
    lines_.erase(line);
  }
  return message;
}

}  // namespace bluefog
