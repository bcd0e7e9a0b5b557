#include "process_group/BatchWork.hpp"
#include "process_group/Call.hpp"

namespace bluefog {

void ProcessGroupBluefog::startCoalescing() {
  checkProcess("startCoalescing");
  coalescing_.begin();
}

WorkPtr ProcessGroupBluefog::endCoalescing() {
  checkProcess("endCoalescing");
  TORCH_CHECK(coalescing_.isOn(), Validate(engine_->members(), "endCoalescing").who(),
              "this thread has not called startCoalescing");
  return c10::make_intrusive<BatchWork>(rank_, coalescing_.end());
}

}  // namespace bluefog
