#pragma once

#include <vector>

#include "transport/messages/Mailbox.hpp"

namespace bluefog {

// PostedReceives are the receives that an operation has posted, in the order of a list of sources.
using PostedReceives = std::vector<PostedReceive>;

// Posts a receive for a message from each of the sources.
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
