#include <algorithm>

#include "process_group/Call.hpp"
#include "process_group/Packed.hpp"

namespace bluefog {
namespace {

// Larger ones gain nothing by sharing an operation, and copying them costs.
constexpr size_t kLargestPacked = size_t{64} << 10;

using Tensors = std::vector<at::Tensor>;

bool isPackable(const at::Tensor& tensor) {
  return !tensor.is_sparse() && tensor.nbytes() <= kLargestPacked;
}

// The small ones of each type together, the others each alone: in an order that is the same on
// every rank that was given the same.
std::vector<Tensors> bundles(const Tensors& tensors) {
  std::vector<Tensors> all;
  for (const at::Tensor& tensor : tensors) {
    const auto joins = [&](const Tensors& bundle) {
      return isPackable(bundle.front()) && bundle.front().scalar_type() == tensor.scalar_type();
    };
    const auto bundle =
        isPackable(tensor) ? std::find_if(all.begin(), all.end(), joins) : all.end();
    if (bundle == all.end()) {
      all.push_back({tensor});
    } else {
      bundle->push_back(tensor);
    }
  }
  return all;
}

}  // namespace

ProcessGroupBluefog::Call ProcessGroupBluefog::packedAllreduceCall(
    const Validate& validate, const Tensors& tensors, const c10d::ReduceOp& reduction,
    std::chrono::milliseconds timeout) {
  for (const at::Tensor& tensor : tensors) {
    validate.writable(tensor, "an input");
  }
  auto packed = std::make_shared<Packed>(tensors);
  Call call = allreduceCall(validate, packed->memory(), reduction, timeout);
  call.op->epilogue = [packed] { packed->unpack(); };
  return call;
}

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
    calls.push_back(
        first.is_sparse()    ? allreduceSparseCall(validate, first, opts.reduceOp, opts.timeout)
        : bundle.size() == 1 ? allreduceCall(validate, first, opts.reduceOp, opts.timeout)
                             : packedAllreduceCall(validate, bundle, opts.reduceOp, opts.timeout));
  }
  return postAll(
      validate, std::move(calls),
      {nullptr, c10d::OpType::ALLREDUCE_COALESCED, "bluefog:all_reduce", tensors, tensors},
      opts.asyncOp);
}

}  // namespace bluefog
