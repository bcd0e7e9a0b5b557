#include "process_group/work/BatchWork.hpp"

#include <ATen/core/ivalue.h>

#include <algorithm>

namespace bluefog {

bool BatchWork::isCompleted() {
  return std::all_of(works_.begin(), works_.end(),
                     [](const auto& work) { return work->isCompleted(); });
}

bool BatchWork::isSuccess() const {
  return std::all_of(works_.begin(), works_.end(),
                     [](const auto& work) { return work->isSuccess(); });
}

std::exception_ptr BatchWork::exception() const {
  for (const auto& work : works_) {
    if (const std::exception_ptr error = work->exception()) {
      return error;
    }
  }
  return nullptr;
}

std::vector<at::Tensor> BatchWork::result() {
  std::vector<at::Tensor> all;
  for (const auto& work : works_) {
    const std::vector<at::Tensor> outputs = work->result();
    all.insert(all.end(), outputs.begin(), outputs.end());
  }
  return all;
}

bool BatchWork::wait(std::chrono::milliseconds timeout) {
  for (const auto& work : works_) {
    work->wait(timeout);
  }
  return true;
}

#ifdef C10D_BACKEND_HAS_HOOKS
std::chrono::milliseconds BatchWork::getTimeout() const {
  std::chrono::milliseconds longest{0};
  for (const auto& work : works_) {
    longest = std::max(longest, work->getTimeout());
  }
  return longest;
}
#endif

void BatchWork::abort() {
  for (const auto& work : works_) {
    work->abort();
  }
}

c10::intrusive_ptr<c10::ivalue::Future> BatchWork::getFuture() {
  c10::List<c10::intrusive_ptr<c10::ivalue::Future>> each(
      c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));
  for (const auto& work : works_) {
    each.push_back(work->getFuture());
  }
  const auto self = c10::intrusive_ptr<BatchWork>::reclaim_copy(this);
  return c10::collectAll(each)->then(
      [self](c10::ivalue::Future& all) {
        if (all.hasError()) {
          std::rethrow_exception(all.exception_ptr());
        }
        return c10::IValue(self->result());
      },
      c10::ListType::create(c10::TensorType::get()));
}

}  // namespace bluefog
