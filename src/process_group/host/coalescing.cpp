#include "process_group/host/Call.hpp"
#include "process_group/work/BatchWork.hpp"

namespace bluefog {

void ProcessGroupBluefog::startCoalescing() {
  checkProcess("startCoalescing");
  coalescing_.begin();
}

Coalescing::Batch ProcessGroupBluefog::endBatch() {
  checkProcess("endCoalescing");
  TORCH_CHECK(coalescing_.isOn(), Validate(engine_->members(), "endCoalescing").who(),
              "this thread has not called startCoalescing");
  return coalescing_.end();
}

WorkPtr ProcessGroupBluefog::endCoalescing() {
  return c10::make_intrusive<BatchWork>(rank_, endBatch().works);
}

}  // namespace bluefog
