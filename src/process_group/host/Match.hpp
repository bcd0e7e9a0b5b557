#pragma once

#include <cstdint>
#include <memory>

#include "process_group/host/Edges.hpp"
#include "transport/operations/MessageOp.hpp"

namespace bluefog {

// A Match is what a neighbor call is matched by, beside its edges; see MatchKey. It also leads to
// the number of the call once that is known.
// Thread safety: one thread at a time.
struct Match {
  int64_t tag = 0;
  // A gradient has the number of the call that it belongs to from the start. Other calls begin with
  // 0 here, and only the fast path sets it.
  uint64_t number = 0;
  std::shared_ptr<const MessageOp> op = nullptr;  // the call's operation, if it has one

  // Returns the number of the call, or 0 if it has not been posted.
  uint64_t numberOfCall() const { return number == 0 && op != nullptr ? op->number : number; }
};

// Returns the counter by which calls of that kind, with these edges and that tag, are counted.
inline Counter counterOf(OpKind kind, const Edges& edges, int64_t tag) {
  const bool is_pair = kind == OpKind::kPairGossip && !edges.destinations.empty();
  return {matchedAs(kind), tag, is_pair ? edges.destinations.front().rank : -1};
}

}  // namespace bluefog
