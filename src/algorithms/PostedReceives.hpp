#pragma once

#include <vector>

#include "transport/messages/Mailbox.hpp"

namespace bluefog {

// The messages that an operation expects, by their sources' places in a list.
using PostedReceives = std::vector<PostedReceive>;

inline PostedReceives postReceives(Mailbox& mailbox, const MessageOp& op,
                                   const std::vector<int>& sources, int64_t tag) {
  PostedReceives messages;
  messages.reserve(sources.size());
  for (const int source : sources) {
    messages.push_back(mailbox.receives().post(op, source, tag));
  }
  return messages;
}

}  // namespace bluefog
