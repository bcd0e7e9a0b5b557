#include <algorithm>

#include "process_group/host/Call.hpp"

namespace bluefog {
namespace {

using Tensors = std::vector<at::Tensor>;

// Groups the tensors: dense ones of the same type are together, and each sparse one is alone. All
// ranks that are given the same tensors get the same order.
std::vector<Tensors> bundles(const Tensors& tensors) {
  std::vector<Tensors> all;
  for (const at::Tensor& tensor : tensors) {
    const auto bundle = std::find_if(all.begin(), all.end(), [&](const Tensors& bundle) {
      return !tensor.is_sparse() && !bundle.front().is_sparse() &&
             bundle.front().scalar_type() == tensor.scalar_type();
    });
    if (bundle == all.end()) {
      all.push_back({tensor});
    } else {
      bundle->push_back(tensor);
    }
  }
  return all;
}

}  // namespace

WorkPtr ProcessGroupBluefog::allreduce_coalesced(Tensors& tensors,
                                                 const c10d::AllreduceCoalescedOptions& opts) {
  checkProcess("allreduce_coalesced");
  const Validate validate(engine_->members(), "allreduce_coalesced");
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.is_sparse()) {
      validate.tensor(tensor, "an input");
    }
  }
  std::vector<Call> calls;
  for (const Tensors& bundle : bundles(tensors)) {
    const at::Tensor& first = bundle.front();
    calls.push_back(first.is_sparse()
                        ? allreduceSparseCall(validate, first, opts.reduceOp, opts.timeout)
                        : allreduceCall(validate, bundle, opts.reduceOp, opts.timeout));
  }
  return postAll(
      validate, std::move(calls),
      {nullptr, c10d::OpType::ALLREDUCE_COALESCED, "bluefog:all_reduce", tensors, tensors},
      opts.asyncOp);
}

}  // namespace bluefog
