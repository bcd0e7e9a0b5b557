#include "process_group/host/Call.hpp"

namespace bluefog {

WorkPtr ProcessGroupBluefog::barrier(const c10d::BarrierOptions& opts) {
  checkProcess("barrier");
  Signature signature;
  signature.kind = OpKind::kBarrier;
  auto op = std::make_shared<CollectiveOp>(signature, deadline(opts.timeout));
  op->tasks.push_back(bluefog::barrier(engine_->board(), *op));
  return post({std::move(op), c10d::OpType::BARRIER, "bluefog:barrier", {}, {}}, opts.asyncOp);
}

}  // namespace bluefog
