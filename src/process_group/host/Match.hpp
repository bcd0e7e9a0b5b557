#pragma once

#include <cstdint>
#include <memory>

#include "process_group/host/Edges.hpp"
#include "transport/operations/Op.hpp"

namespace bluefog {

// A call of neighbors matches by this, beside its edges: see MatchKey.
struct Match {
  int64_t tag = 0;
  // A gradient's is its call's.
  uint64_t number = 0;
  std::shared_ptr<const Op> op = nullptr;  // of the call, once there is one

  // 0 where the call has not been posted.
  uint64_t numberOfCall() const { return number == 0 && op != nullptr ? op->number : number; }
};

// Returns the counter of such a call.
inline Counter counterOf(OpKind kind, const Edges& edges, int64_t tag) {
  const bool is_pair = kind == OpKind::kPairGossip && !edges.destinations.empty();
  return {matchedAs(kind), tag, is_pair ? edges.destinations.front().rank : -1};
}

}  // namespace bluefog
