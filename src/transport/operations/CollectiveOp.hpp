#pragma once

#include "transport/operations/Op.hpp"

namespace bluefog {

// A CollectiveOp is an operation in which all ranks of a group take part. A group runs its
// collectives one after the other, in the order in which they were issued.
//
// Thread safety: see Op.
struct CollectiveOp final : Op {
  CollectiveOp(Signature op_signature, Deadline op_deadline)
      : Op(op_signature, op_deadline, OpRole::kCall) {}

  CollectiveOp* asCollective() override { return this; }

  double factor = 1.0;  // PREMUL_SUM multiplies this rank's input by it
};

}  // namespace bluefog
