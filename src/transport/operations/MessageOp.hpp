#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/Spans.hpp"
#include "transport/operations/Op.hpp"

namespace bluefog {

// An Outgoing is one message that an operation sends. It does not own the bytes.
struct Outgoing {
  int destination = 0;
  int64_t tag = 0;  // unused in a second message: see Phase
  ConstSpans data;
  double weight = 1.0;  // a receiver that sums multiplies the data by it
  Phase phase = Phase::kOnly;
  bool is_ready = true;  // false until the operation itself has made `data`
  // The place of `data` in this rank's heap, where a receiver on this host may read all of it.
  std::optional<uint64_t> offer = std::nullopt;
};

// A MessageOp is a point-to-point or neighbor operation. All that a group has under way run at the
// same time; their messages are matched by MatchKey. The first tasks send the outgoing messages,
// one task for each message.
//
// Thread safety: see Op.
struct MessageOp final : Op {
  MessageOp(Signature op_signature, Deadline op_deadline, OpRole op_role = OpRole::kCall)
      : Op(op_signature, op_deadline, op_role) {}

  MessageOp* asMessage() override { return this; }
  // All ranks know a call of neighbors by its number.
  uint64_t titleNumber() const override { return number > 0 ? number : sequence; }

  // Where a call of neighbors has a counter and no number, Engine::post() takes the next number.
  std::optional<Counter> counter;
  uint64_t number = 0;  // see MatchKey
  std::vector<Outgoing> outgoing;
  std::vector<int> partners;  // the ranks that it exchanges messages with
};

}  // namespace bluefog
