#include "process_group/host/Splits.hpp"

#include <c10/util/StringUtil.h>

namespace bluefog {

std::optional<Splits::BackendPtr> Splits::madeWith(const StorePtr& store) {
  const std::lock_guard lock(mutex_);
  return last_ && last_->store == store ? std::optional(last_->part.lock()) : std::nullopt;
}

std::string Splits::nameOfNext(const std::vector<int>& ranks) {
  const std::lock_guard lock(mutex_);
  return "split/" + c10::Join(",", ranks) + "/" + std::to_string(++parts_of_[ranks]);
}

void Splits::note(const StorePtr& store, const BackendPtr& part) {
  const std::lock_guard lock(mutex_);
  last_ = {store, c10::weak_intrusive_ptr<c10d::Backend>(part)};
}

}  // namespace bluefog
