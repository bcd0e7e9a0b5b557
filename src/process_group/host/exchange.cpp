#include "process_group/host/ExchangeBlocks.hpp"

namespace bluefog {

// Posts the exchange of blocks that gather, scatter and all_to_all consist of.
WorkPtr ProcessGroupBluefog::postExchange(OpKind kind, int root, ExchangeBlocks&& blocks,
                                          Call&& call, Milliseconds timeout, bool async_op) {
  Signature signature;
  signature.kind = kind;
  signature.root = static_cast<int16_t>(root);
  // The signature has no count, because ranks may send each other different sizes. The algorithm
  // compares them.
  signature.dtype = dtypeOf((call.inputs.empty() ? call.outputs : call.inputs).front());
  auto op = std::make_shared<CollectiveOp>(signature, deadline(timeout));
  blocks.giveTo(*op, engine_->board());
  call.op = std::move(op);
  return post(std::move(call), async_op);
}

}  // namespace bluefog
